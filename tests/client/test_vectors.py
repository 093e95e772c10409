"""The cases of clients/vectors, which every language's client must pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oncekey.client import Budget, Retries, derived, tool_key
from oncekey.client.judging import Answer, judge, retry_after
from oncekey.client.machine import Attempts, Deliver, Send, Sent, Stop, Wait
from oncekey.http.problems import PROBLEMS, Retry

VECTORS = Path(__file__).parents[2] / "clients" / "vectors"


def cases(name: str) -> list[Any]:
    found = json.loads((VECTORS / name).read_text("utf-8"))
    return [pytest.param(case, id=case["name"]) for case in found]


def answer_of(case: dict[str, Any]) -> Answer:
    return Answer(case["status"], case["headers"], case["body"].encode())


@pytest.mark.parametrize("case", cases("decisions.json"))
def test_decisions(case: dict[str, Any]) -> None:
    """One answer has one meaning, and says how long to wait."""
    answer = answer_of(case)
    assert judge(answer) == case["verdict"]
    assert retry_after(answer, 0.0) == case.get("retry_after")


def test_every_problem_has_a_case() -> None:
    """A refusal that the server learns is one that clients must have thought about; what comes back is never final."""
    found = json.loads((VECTORS / "decisions.json").read_text("utf-8"))
    for slug, problem in PROBLEMS.items():
        verdicts = {
            case["verdict"]
            for case in found
            if case["headers"].get("idempotency-problem") == slug or f'problems/{slug}"' in case["body"]
        }
        assert verdicts, slug
        assert problem.retry is not Retry.SAME_KEY_LATER or not verdicts & {"answer", "mismatch", "over"}, slug


def told(step: object) -> dict[str, Any]:
    """A step as the vectors write it."""
    if isinstance(step, Send):
        return {"send": step.number}
    if isinstance(step, Wait):
        return {"wait": round(step.seconds, 6)}
    if isinstance(step, Deliver):
        return {"deliver": str(step.verdict)}
    assert isinstance(step, Stop)
    return {"stop": step.reason, "known": step.known.name.lower().replace("_", "-"), "attempts": step.attempts}


@pytest.mark.parametrize("case", cases("attempts.json"))
def test_attempts(case: dict[str, Any]) -> None:
    """A whole conversation takes the same steps in every language."""
    budget = Budget(**case["budget"]) if "budget" in case else None
    retries = Retries(**case["retries"], budget=budget)
    clock = [0.0]
    attempts = Attempts(retries, age=case.get("age"), chance=lambda: case["chance"], clock=lambda: clock[0])
    for step in case["steps"]:
        clock[0] = step.get("clock", clock[0])
        if step["event"] == "next":
            done: object = attempts.next(step["at"])
        elif step["event"] == "answer":
            done = attempts.answered(answer_of(step), step["at"])
        else:
            done = attempts.failed(Sent(step["sent"]), step["at"])
        assert told(done) == step["expect"], step


@pytest.mark.parametrize("case", cases("keys.json"))
def test_keys(case: dict[str, Any]) -> None:
    """Keys that are made of something are the same in every language."""
    if case["kind"] == "derived":
        assert derived(*case["of"]) == case["key"]
    else:
        assert tool_key(*case["of"]) == case["key"]
