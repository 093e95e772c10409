"""Claim, work and answer in one commit, in every framework and on both databases."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from oncekey.core.record import State
from oncekey.effects.transaction.block import Block
from tests.adapters.transactional.apps import KINDS, Kind, headers, installation, named
from tests.effects.kinds import on_psycopg, on_sqlite
from tests.effects.transaction.shop import Shop

each = pytest.mark.parametrize("kind", KINDS, ids=named)
on_postgres = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.database == "postgresql"], ids=named)


@each
def test_the_answer_is_kept_in_the_commit(kind: Kind, shop: Shop) -> None:
    """A retry gets the first answer, another body none, and a request without a key is told so."""
    with kind.opened(shop.url) as post:
        first, again, other = post("k", number="1"), post("k", number="1"), post("k", number="2")
        assert (first.status, json.loads(first.body), first.replayed) == (201, {"number": "1"}, False)
        assert (again.status, again.body, again.replayed) == (201, first.body, True)
        assert again["content-type"] == first["content-type"] == "application/json"
        assert (other.status, other.problem) == (422, "key-reused")
        assert post(None, number="3").problem == "key-missing"
    record = shop.record("k")
    assert record is not None
    assert record.state is State.COMPLETED
    assert shop.orders() == ["1"]


@each
def test_what_was_read_before_is_part_of_it(kind: Kind, shop: Shop) -> None:
    """A login that has read on the session has begun its transaction; it is committed before anybody is answered."""
    with kind.opened(shop.url, login=True) as post:
        assert [post("k", number="1").status for _ in range(2)] == [201, 201]
        assert shop.orders() == ["1"]
        assert post("other", number="2", do="fail").status == 500
    assert shop.orders() == ["1"]


@each
@pytest.mark.parametrize(("do", "status"), [("fail", 500), ("not-executed", 503), ("503", 503), ("429", 429)])
def test_what_did_not_succeed_leaves_nothing(kind: Kind, shop: Shop, do: str, status: int) -> None:
    """An exception, or an answer that is not kept: no order, no record, and the key is free for the retry."""
    with kind.opened(shop.url) as post:
        assert post("k", number="1", do=do).status == status
        assert (shop.orders(), shop.record("k")) == ([], None)
        assert post("k", number="1").status == 201
    assert shop.orders() == ["1"]


@each
def test_refusals_of_the_handlers_own_are_kept(kind: Kind, shop: Shop) -> None:
    """An answer of 4xx is an answer. Declined is one too, without what was written before it."""
    with kind.opened(shop.url) as post:
        assert [post("a", number="1", do="409").status for _ in range(2)] == [409, 409]
        first, again = post("b", number="2", do="declined"), post("b", number="2", do="declined")
        assert (first.status, first.body, first.replayed) == (402, b'{"reason":"card"}', False)
        assert (again.status, again.body, again.replayed) == (402, first.body, True)
    assert shop.orders() == ["1"]


@each
def test_a_commit_behind_our_back_is_noticed(kind: Kind, shop: Shop) -> None:
    """The client is told that the outcome is not known, and nothing runs again."""
    with kind.opened(shop.url) as post:
        first = post("k", number="1", do="commit")
        assert (first.status, first.problem) == (409, "outcome-unknown")
        assert (post("k", number="1", do="commit").problem, shop.orders()) == ("outcome-unknown", ["1"])


@each
def test_an_outcome_that_is_unknown_keeps_the_key_shut(kind: Kind, shop: Shop) -> None:
    """What was written is undone; what was done elsewhere nobody knows, so nothing runs again."""
    with kind.opened(shop.url) as post:
        assert [post("k", number="1", do="unknown").problem for _ in range(2)] == ["outcome-unknown"] * 2
    record = shop.record("k")
    assert record is not None
    assert (record.state, shop.orders()) == (State.UNKNOWN, [])


@each
def test_nobody_comes_between_the_doubt_and_the_shut_key(
    kind: Kind, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim stands until it says that nobody knows: a gap, where a duplicate would run, is nowhere left."""
    asked: Any = {"key": "k", "operation": "POST /orders", "caller": headers(None)["Authorization"]}
    came, shut = [], Block.shut

    def late(block: Block, note: str) -> Any:
        native = on_psycopg if kind.database == "postgresql" else on_sqlite
        with native(shop.url) as connection, installation(shop.url).transaction(connection, **asked):
            came.append("a duplicate")
        return shut(block, note)

    monkeypatch.setattr(Block, "shut", late)
    with kind.opened(shop.url) as post:
        assert post("k", number="1", do="unknown").problem == "outcome-unknown"
        assert (came, shop.orders()) == ([], [])
        assert post("k", number="1", do="unknown").problem == "outcome-unknown"
        assert post("another", number="2").status == 201
    record = shop.record("k")
    assert record is not None
    assert (record.state, shop.orders()) == (State.UNKNOWN, ["2"])


@each
def test_a_stream_is_given_once(kind: Kind, shop: Shop) -> None:
    """The work is committed before it flows; a retry is told that the answer was not kept."""
    with kind.opened(shop.url) as post:
        assert post("k", number="1", do="stream").body == b"ab"
        assert (post("k", number="1", do="stream").problem, shop.orders()) == ("answer-not-kept", ["1"])


@on_postgres
def test_a_collision_is_for_the_client_to_retry(kind: Kind, shop: Shop) -> None:
    """The handler is not run again behind anybody's back: 503, with the same key, and nothing was done."""
    with kind.opened(shop.url) as post:
        told = post("k", number="1", do="collide")
        assert (told.status, told.problem, told["retry-after"].isdigit()) == (503, "not-executed", True)
        assert (shop.orders(), shop.record("k")) == ([], None)


@on_postgres
def test_a_key_that_is_in_flight_is_said_at_once(kind: Kind, shop: Shop) -> None:
    """Whoever has it: nobody waits for the owner's row, and nothing is run."""
    asked: Any = {"key": "k", "operation": "POST /orders", "caller": headers(None)["Authorization"]}
    with psycopg.connect(shop.url) as owner, kind.opened(shop.url) as post:
        with installation(shop.url).transaction(owner, **asked):
            told = post("k", number="1")
        assert (told.status, told.problem, told["retry-after"].isdigit()) == (409, "in-progress", True)
    assert shop.orders() == []
