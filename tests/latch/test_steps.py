from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from oncekey import ConfigurationError, NotExecuted, Policy, StoreUnavailable
from oncekey.core.record import State
from oncekey.stores.memory import MemoryStore
from tests.latch.gateways import COLOURS, Colour, Gateway

pytestmark = pytest.mark.parametrize("colour", COLOURS)


class Order(NamedTuple):
    item: str

    @classmethod
    def read(cls, data: bytes) -> Order:
        return cls(data.decode())


CODEC = (lambda order: order.item.encode(), Order.read)


@pytest.mark.parametrize(
    ("result", "given", "codec"),
    [
        ({"id": 7, "lines": [1, 2.5, None, True, "ü"]}, {"id": 7, "lines": [1, 2.5, None, True, "ü"]}, None),
        (("a", 1), ["a", 1], None),
        (None, None, None),
        (b"\x00\xff", b"\x00\xff", None),
        (Order("tea"), Order("tea"), CODEC),
    ],
)
def test_a_step_that_is_done_is_skipped(colour: Colour, result: Any, given: Any, codec: Any) -> None:
    """The retry gets its result without running it; and the first attempt was given the same as the retry."""
    ran, got = [], []

    def reserve() -> Any:
        ran.append(1)
        return result

    async def work(op: Any) -> None:
        got.append(await op.step("reserve", reserve, codec=codec))
        if op.attempt == 1:
            raise NotExecuted

    with Gateway(colour, work) as gateway:
        assert [gateway.ask()[0] for _ in range(3)] == [503, 201, 201]
    assert (ran, got) == ([1], [given, given])


def test_a_call_within_a_kept_step_is_done_with(colour: Colour) -> None:
    """After it any failure is retryable: the retry skips the step, and the call in it is made once."""
    charged: list[str] = []

    async def work(op: Any) -> bytes:
        async def charge() -> str:
            async with op.external("psp.charge") as call:
                charged.append(call.key)
                call.reference = "ch_1"
            return "ch_1"

        paid = await op.step("charge", charge)
        if op.attempt == 1:
            raise RuntimeError("a bug behind the charge")
        return json.dumps(paid).encode()

    with Gateway(colour, work) as gateway:
        assert gateway.ask()[2] == "not-executed"
        assert gateway.state is State.FAILED_RETRYABLE
        [call] = gateway.journal.calls
        assert (call.within, call.reference) == ("charge", "ch_1")
        assert [gateway.ask()[1] for _ in range(2)] == [b'"ch_1"'] * 2
    assert len(charged) == 1


def test_a_call_within_a_step_that_fails_is_open(colour: Colour) -> None:
    """The step was not kept, so the call in it may have been made: unknown, and nothing runs again."""

    async def work(op: Any) -> None:
        async def charge() -> None:
            async with op.external("psp.charge"):
                pass
            raise RuntimeError("between the call and the record")

        await op.step("charge", charge)

    with Gateway(colour, work) as gateway:
        assert [gateway.ask()[2] for _ in range(2)] == ["outcome-unknown"] * 2
        assert gateway.record.attempts == 1


def test_another_argument_is_another_step(colour: Colour) -> None:
    """What a step is given must not change between attempts; bytes and order of members are compared too."""
    asked: Iterator[Any] = iter([{"a": 1, "b": b"x"}, {"b": b"x", "a": 1}, {"a": 1, "b": b"y"}])
    ran: list[Any] = []

    async def work(op: Any) -> None:
        await op.step("reserve", ran.append, next(asked))
        raise NotExecuted

    with Gateway(colour, work) as gateway:
        for note in ("NotExecuted", "NotExecuted", "StepChanged: the step 'reserve' was done by an earlier attempt"):
            gateway.ask()
            assert gateway.record.note.startswith(note)
    assert len(ran) == 1


def test_the_order_of_steps_may_change(colour: Colour) -> None:
    """Steps are known by name: new code may put another one in front, and what is done stays done."""
    ran: list[str] = []

    async def work(op: Any) -> None:
        for name in ("pay", "ship") if op.attempt == 1 else ("check", "ship", "pay"):
            await op.step(name, ran.append, name)
        if op.attempt == 1:
            raise NotExecuted

    with Gateway(colour, work) as gateway:
        assert [gateway.ask()[0] for _ in range(2)] == [503, 201]
    assert ran == ["pay", "ship", "check"]


def test_a_step_is_run_once_in_an_attempt(colour: Colour) -> None:
    """A loop over items under one name is refused; a step that failed may be tried again."""
    ran: list[int] = []

    def fails_first() -> None:
        ran.append(1)
        if len(ran) == 1:
            raise ValueError("the first time")

    async def work(op: Any) -> None:
        with pytest.raises(ValueError, match="first time"):
            await op.step("mail", fails_first)
        await op.step("mail", fails_first)
        with pytest.raises(ConfigurationError, match="'mail-2'"):
            await op.step("mail", fails_first)
        if op.attempt == 1:
            raise NotExecuted

    with Gateway(colour, work) as gateway:
        gateway.ask()
        assert len(ran) == 2


@pytest.mark.parametrize(
    ("result", "note"),
    [
        (object(), "ConfigurationError: the step 'report' returned a object that JSON cannot hold"),
        (float("nan"), "ConfigurationError: the step 'report' returned a float that JSON cannot hold"),
        ("x" * 70_000, "JournalFull: with 'report' the journal of this operation would have 70"),
    ],
)
def test_a_result_that_cannot_be_kept_says_what_to_do(colour: Colour, result: Any, note: str) -> None:
    """Too large, or of a kind that does not come back as it was."""

    async def work(op: Any) -> None:
        await op.step("report", lambda: result)

    with Gateway(colour, work) as gateway:
        gateway.ask()
        assert gateway.record.note.startswith(note)
        assert gateway.journal.entries == ()


def test_bad_names_and_arguments_are_refused_before_the_step(colour: Colour) -> None:
    """Nothing of it was run."""
    ran: list[Any] = []

    async def work(op: Any) -> None:
        with pytest.raises(ConfigurationError, match="lambda: charge"):
            await op.step("charge", ran.append, object())
        with pytest.raises(ConfigurationError, match="name is a text"):
            await op.step("", ran.append, 1)

    with Gateway(colour, work) as gateway:
        assert (gateway.ask()[0], ran) == (201, [])


def test_a_codec_that_is_gone_is_missed(colour: Colour) -> None:
    """Bytes that only a codec can read are not given to code that lost it."""

    async def work(op: Any) -> None:
        await op.step("order", lambda: Order("tea"), codec=CODEC if op.attempt == 1 else None)
        raise NotExecuted

    with Gateway(colour, work) as gateway:
        gateway.ask()
        gateway.ask()
        assert "give it the same codec= again" in gateway.record.note


class Away(MemoryStore):
    """A store that takes no journal for a while."""

    away = False

    def renew(self, many: Any) -> Any:
        if self.away:
            raise StoreUnavailable("away")
        return super().renew(many)


def test_a_result_that_could_not_be_stored_goes_with_the_settlement(colour: Colour) -> None:
    """The store was away when the step ended, and back when the attempt did: the retry still skips the step."""
    store = Away()
    ran: list[int] = []

    async def work(op: Any) -> None:
        store.away = op.attempt == 1
        await op.step("reserve", ran.append, 1)

    with Gateway(colour, work, store, policy=Policy(latch=True)) as gateway:
        assert [gateway.ask()[0] for _ in range(2)] == [503, 201]
    assert ran == [1]
