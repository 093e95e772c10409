"""The providers' own packages with keys from one journal: a program that died has the same key when it starts again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from square import Square

from oncekey import by
from oncekey.client import Journal
from tests.demo.server import DemoServer, fresh
from tests.sdks import test_adyen, test_boto3, test_paypal, test_square, test_stripe
from tests.sdks.line import Line
from tests.sdks.shop import Shop, opened

Pay = Callable[[Line, str, str], object]


def by_stripe(line: Line, ref: str, key: str) -> object:
    return test_stripe.charge(test_stripe.client(line, retries=0), ref, key)


def by_square(line: Line, ref: str, key: str) -> object:
    with httpx.Client(timeout=30) as connection:
        return test_square.pay(Square(token="alice", base_url=line.url, httpx_client=connection), ref, key)


def by_adyen(line: Line, ref: str, key: str) -> object:
    return test_adyen.pay(line, f"probe:ref={ref}", key)


def by_paypal(line: Line, ref: str, key: str) -> object:
    caller = test_paypal.Caller(line)
    try:
        return caller.order(ref, key)
    finally:
        caller.session.close()


class Died(Exception):
    """The program ends here, after the request and before it knows the answer."""


@pytest.mark.parametrize("pay", [by_stripe, by_square, by_adyen, by_paypal])
def test_a_program_that_died_pays_once(pay: Pay, demo: DemoServer, line: Line, tmp_path: Path) -> None:
    """The second start sends the key of the first, and the provider acts once."""
    ref, path = fresh("ref"), tmp_path / "intents.db"
    keys = []
    with suppress(Died), Journal(path).intent("pay", ref) as key:
        keys.append(str(key))
        pay(line, ref, key)
        raise Died
    with Journal(path).intent("pay", ref) as key:
        keys.append(str(key))
        pay(line, ref, key)
    assert len(set(keys)) == 1
    assert Journal(path).pending() == []
    assert demo.executions(ref) == 1


def test_boto3_takes_the_token_of_the_journal(tmp_path: Path) -> None:
    """The same, with DynamoDB's ClientRequestToken: two starts, one run."""
    path = tmp_path / "intents.db"
    shop = Shop(test_boto3.serve)
    with opened(shop, "aws", by(test_boto3.access_key)) as service, Line(service.port) as line:
        dynamo = test_boto3.client("dynamodb", line)
        with suppress(Died), Journal(path).intent("put", "order-1") as key:
            dynamo.transact_write_items(TransactItems=test_boto3.PUT, ClientRequestToken=key)
            raise Died
        with Journal(path).intent("put", "order-1") as key:
            dynamo.transact_write_items(TransactItems=test_boto3.PUT, ClientRequestToken=key)
        assert test_boto3.tokens(line) == [key, key]
    assert len(shop.runs) == 1
