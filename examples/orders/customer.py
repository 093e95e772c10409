"""The customer: orders a number of things. Each has a key, kept in a file, so that a restart orders nothing twice.

Runs by itself: `python -m examples.orders.customer http://127.0.0.1:8000 orders.journal 10`
"""

from __future__ import annotations

import sys
from pathlib import Path

import httpx

from oncekey.client import Journal, Retries, check
from oncekey.client.httpx import RetryTransport

# A shop that is killed is back soon: ask often, and as long as it takes.
PATIENT = Retries(attempts=None, try_for=None, wait_for=0.02, longest_wait_for=0.5, budget=None)


def order(url: str, path: Path, count: int) -> list[int]:
    """Order so many things, going on where an earlier run ended; return the numbers of the orders."""
    journal = Journal(path)
    transport = RetryTransport(journal=journal, retries=PATIENT)
    with httpx.Client(transport=transport, base_url=url, headers={"Authorization": "Bearer customer"}) as client:
        return [one_order(client, journal, number) for number in range(count)]


def one_order(client: httpx.Client, journal: Journal, number: int) -> int:
    """One thing that is wanted: one intent, one key, one request, whatever becomes of this process."""
    with journal.intent("order", number):
        answer = check(client.post("/orders", json={"item": f"book {number}"}))
    found: int = answer.json()["number"]
    return found


if __name__ == "__main__":
    print(order(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
