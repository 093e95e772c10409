"""boto3's token habits against a service of the aws dialect: made up by itself, in the body, the same on each retry."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from oncekey import by
from oncekey.http.messages import Request
from tests.demo.server import PATIENCE
from tests.sdks.line import Line
from tests.sdks.shop import Answer, Shop, opened

JSON = [(b"content-type", b"application/x-amz-json-1.0")]
PUT: list[Any] = [{"Put": {"TableName": "orders", "Item": {"id": {"S": "1"}}}}]


def access_key(request: Request) -> str | None:
    """The caller: a signature differs with every request, the access key in it does not."""
    found = re.search(rb"Credential=([^/]+)/", request.header(b"authorization"))
    return found[1].decode() if found else None


def serve(headers: dict[bytes, bytes], body: bytes, number: int) -> Answer:
    """DynamoDB's transactions and Cloud Control's resources; a table named busy is refused without effect at first."""
    if b'"busy"' in body and number == 1:
        return 429, JSON, b'{"__type": "ThrottlingException", "message": "later"}'
    if b'"broken"' in body:
        return 500, JSON, b'{"__type": "InternalServerError", "message": "no"}'
    if b"CloudApiService" in headers[b"x-amz-target"]:
        return 200, JSON, json.dumps({"ProgressEvent": {"RequestToken": f"run-{number}"}}).encode()
    return 200, JSON, b"{}"


@pytest.fixture
def shop() -> Iterator[Shop]:
    """The service."""
    with opened(Shop(serve), "aws", by(access_key)) as service:
        yield service


@pytest.fixture
def line(shop: Shop) -> Iterator[Line]:
    """A line to it."""
    with Line(shop.port) as between:
        yield between


# Reading a service's model takes boto3 long; a session reads each once.
SESSION = boto3.Session(aws_access_key_id="AKIAALICE", aws_secret_access_key="s", region_name="eu-central-1")


def client(service: Any, line: Line, attempts: int = 3) -> Any:
    """A client of the line, in the default retry mode."""
    config = Config(retries={"mode": "standard", "total_max_attempts": attempts}, parameter_validation=True)
    return SESSION.client(service, endpoint_url=line.url, config=config)


def tokens(line: Line, member: str = "ClientRequestToken") -> list[str]:
    """The token of every request that passed."""
    return [json.loads(passed.body)[member] for passed in line.passed]


def test_a_token_is_made_up_for_each_call(shop: Shop, line: Line) -> None:
    """A UUID4 in the body, another one per call."""
    dynamodb = client("dynamodb", line)
    for _ in range(2):
        dynamodb.transact_write_items(TransactItems=PUT)
    assert [uuid.UUID(token).version for token in tokens(line)] == [4, 4]
    assert (len(set(tokens(line))), len(shop.runs)) == (2, 2)
    dynamodb.close()


def test_a_lost_answer_is_retried_with_the_same_token(shop: Shop, line: Line) -> None:
    """The retry carries the token of the first try and gets its answer: one run."""
    control, line.lose = client("cloudcontrol", line), 1
    made = control.create_resource(TypeName="AWS::S3::Bucket", DesiredState="{}")
    assert made["ProgressEvent"]["RequestToken"] == "run-1"
    assert len(tokens(line, "ClientToken")) == 2
    assert (len(set(tokens(line, "ClientToken"))), len(shop.runs)) == (1, 1)
    control.close()


def test_a_refusal_without_effect_is_retried_and_runs(shop: Shop, line: Line) -> None:
    """429 releases the token: the SDK's next try under it runs and succeeds."""
    dynamodb = client("dynamodb", line)
    dynamodb.transact_write_items(TransactItems=[{"Put": {"TableName": "busy", "Item": {"id": {"S": "1"}}}}])
    assert [passed.status for passed in line.passed] == [429, 200]
    assert (len(set(tokens(line))), len(shop.runs)) == (1, 2)
    dynamodb.close()


def test_after_a_500_the_same_token_runs_nothing(shop: Shop, line: Line) -> None:
    """Nobody knows whether it took effect: the SDK's retry is told that a transaction is in progress."""
    dynamodb = client("dynamodb", line, attempts=2)
    with pytest.raises(dynamodb.exceptions.TransactionInProgressException):
        dynamodb.transact_write_items(TransactItems=[{"Put": {"TableName": "broken", "Item": {"id": {"S": "1"}}}}])
    assert [passed.status for passed in line.passed] == [500, 400]
    assert (len(set(tokens(line))), len(shop.runs)) == (1, 1)
    dynamodb.close()


def test_a_mismatch_raises_the_modelled_exception_at_once(shop: Shop, line: Line) -> None:
    """IdempotentParameterMismatchException, after one try."""
    dynamodb, token = client("dynamodb", line), str(uuid.uuid4())
    dynamodb.transact_write_items(TransactItems=PUT, ClientRequestToken=token)
    other: list[Any] = [{"Put": {"TableName": "orders", "Item": {"id": {"S": "2"}}}}]
    with pytest.raises(dynamodb.exceptions.IdempotentParameterMismatchException):
        dynamodb.transact_write_items(TransactItems=other, ClientRequestToken=token)
    assert ([passed.status for passed in line.passed], len(shop.runs)) == ([200, 400], 1)
    dynamodb.close()


def test_a_service_without_the_model_gets_the_same_code(shop: Shop, line: Line) -> None:
    """Where the service's model has no such exception it is a ClientError with the code."""
    control = client("cloudcontrol", line)
    for state, told in (("{}", None), ('{"a": 1}', "IdempotentParameterMismatchException")):
        try:
            control.create_resource(TypeName="AWS::S3::Bucket", DesiredState=state, ClientToken="token-1")
            code = None
        except ClientError as error:
            code = error.response["Error"]["Code"]
        assert code == told
    assert len(shop.runs) == 1
    control.close()


def test_in_flight_is_retried_by_its_type(shop: Shop, line: Line) -> None:
    """TransactionInProgressException is one that boto3 knows to try again; its next try is the answer."""
    dynamodb, token = client("dynamodb", line), str(uuid.uuid4())
    shop.gate.clear()
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(dynamodb.transact_write_items, TransactItems=PUT, ClientRequestToken=token)
        assert shop.begun.wait(PATIENCE)
        line.then = lambda passed: shop.gate.set()
        dynamodb.transact_write_items(TransactItems=PUT, ClientRequestToken=token)
        first.result()
    statuses = [passed.status for passed in line.passed]
    assert (statuses.count(200), statuses.count(400) >= 1, len(shop.runs)) == (2, True, 1)
    dynamodb.close()


def test_without_retries_a_lost_answer_is_raised(shop: Shop, line: Line) -> None:
    """The caller's own retry needs its own token, because the one made up is not shown."""
    dynamodb, token, line.lose = client("dynamodb", line, attempts=1), str(uuid.uuid4()), 1
    with pytest.raises(ConnectionClosedError):
        dynamodb.transact_write_items(TransactItems=PUT, ClientRequestToken=token)
    dynamodb.transact_write_items(TransactItems=PUT, ClientRequestToken=token)
    assert (tokens(line), len(shop.runs)) == ([token, token], 1)
    dynamodb.close()
