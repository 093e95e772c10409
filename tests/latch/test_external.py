from __future__ import annotations

import contextlib
from typing import Any

import pytest

from oncekey import ConfigurationError, Declined, NotExecuted, Policy, StoreUnavailable
from oncekey.core.commands import Swap
from oncekey.core.journal import Call, CallState
from oncekey.core.record import State
from oncekey.core.transitions import Aftermath, Facts, moved
from oncekey.engine.sealing import Sealer
from oncekey.stores.memory import MemoryStore
from oncekey.testing import ManualClock
from tests.latch.gateways import COLOURS, LATCH, Colour, Gateway

pytestmark = pytest.mark.parametrize("colour", COLOURS)
UNLATCHED = Policy()
REPEATED = Policy(latch=True, guarantee="deduplicated_downstream")


async def before(op: Any) -> None:
    raise RuntimeError("a look-up failed")


async def inside(op: Any) -> None:
    async with op.external("charge"):
        raise TimeoutError


async def after(op: Any) -> None:
    async with op.external("charge"):
        pass
    raise RuntimeError("the answer could not be read")


async def not_sent(op: Any) -> None:
    async with op.external("charge"):
        raise NotExecuted("refused")


async def said_not_sent(op: Any) -> None:
    async with op.external("charge") as call:
        call.not_executed()
        raise ConnectionError


async def unclear(op: Any) -> None:
    async with op.external("charge") as call:
        call.unclear()
    raise NotExecuted("it said 503")


async def denies_what_it_did(op: Any) -> None:
    async with op.external("charge"):
        pass
    async with op.external("ship"):
        raise NotExecuted("the warehouse is closed")


async def hears_a_no_and_fails(op: Any) -> None:
    with contextlib.suppress(Declined):
        async with op.external("charge"):
            raise Declined("no")
    raise RuntimeError("the page for that is broken")


async def more_than_the_journal_knows(op: Any) -> None:
    await op.begin()
    async with op.external("charge") as call:
        call.not_executed()
    raise RuntimeError


@pytest.mark.parametrize(
    ("work", "policy", "state", "problem"),
    [
        (before, LATCH, State.FAILED_RETRYABLE, "not-executed"),
        (inside, LATCH, State.UNKNOWN, "outcome-unknown"),
        (after, LATCH, State.UNKNOWN, "outcome-unknown"),
        (not_sent, LATCH, State.FAILED_RETRYABLE, "not-executed"),
        (said_not_sent, LATCH, State.FAILED_RETRYABLE, "not-executed"),
        (unclear, LATCH, State.UNKNOWN, "outcome-unknown"),
        (denies_what_it_did, LATCH, State.UNKNOWN, "outcome-unknown"),
        (denies_what_it_did, UNLATCHED, State.UNKNOWN, "outcome-unknown"),
        (denies_what_it_did, REPEATED, State.FAILED_RETRYABLE, "not-executed"),
        (hears_a_no_and_fails, LATCH, State.FAILED_RETRYABLE, "not-executed"),
        (more_than_the_journal_knows, LATCH, State.UNKNOWN, "outcome-unknown"),
        (before, UNLATCHED, State.UNKNOWN, "outcome-unknown"),
        (said_not_sent, UNLATCHED, State.UNKNOWN, "outcome-unknown"),
        (not_sent, UNLATCHED, State.FAILED_RETRYABLE, "not-executed"),
    ],
)
def test_what_an_end_means_depends_on_where_it_comes(
    colour: Colour, work: Any, policy: Policy, state: State, problem: str
) -> None:
    """Before the call retryable, inside and after it unknown, unless the code says otherwise, unopposed."""
    with Gateway(colour, work, policy=policy) as gateway:
        assert gateway.ask()[2] == problem
        assert gateway.state is state
        if "denies" in work.__name__ and state is State.UNKNOWN:
            assert "charge may have been done" in gateway.record.note


@pytest.mark.parametrize(
    ("status", "called", "policy", "state"),
    [
        (500, False, LATCH, State.FAILED_RETRYABLE),
        (500, True, LATCH, State.UNKNOWN),
        (429, False, LATCH, State.FAILED_RETRYABLE),
        (429, True, LATCH, State.UNKNOWN),
        (429, True, REPEATED, State.FAILED_RETRYABLE),
        (404, True, LATCH, State.COMPLETED),
    ],
)
def test_an_answer_that_denies_what_was_done_is_not_believed(
    colour: Colour, status: int, called: bool, policy: Policy, state: State
) -> None:
    """A 429 frees the key, unless a call was made that a retry would make again."""

    async def work(op: Any) -> int:
        if called:
            async with op.external("charge"):
                pass
        return status

    with Gateway(colour, work, policy=policy) as gateway:
        assert gateway.ask()[0] == status
        assert gateway.state is state


@pytest.mark.parametrize("policy", [LATCH, UNLATCHED])
def test_declined_is_a_final_answer(colour: Colour, policy: Policy) -> None:
    """The provider's no is kept as the outcome, and every retry gets the same bytes."""

    async def work(op: Any) -> None:
        async with op.external("charge"):
            raise Declined({"error": "card_declined"}, status=402)

    with Gateway(colour, work, policy=policy) as gateway:
        assert [gateway.ask() for _ in range(2)] == [(402, b'{"error":"card_declined"}', "")] * 2
        assert gateway.state is State.COMPLETED


def test_declined_with_a_status_that_is_none_is_refused(colour: Colour) -> None:
    """What is no refusal of HTTP would not be read as one."""
    with pytest.raises(ValueError, match="400 to 499"):
        Declined("no", status=200)


def test_a_reconciler_finds_whom_to_ask_under_which_key(colour: Colour) -> None:
    """Provider, place, key, attempt and what the answer said stand in the record of an unknown operation."""

    async def work(op: Any) -> None:
        async with op.external("charge", provider="stripe", target="POST https://api.stripe.com/v1/charges") as call:
            call.reference = "ch_1"
        assert gateway.journal.calls[0].reference == "ch_1"
        async with op.external("ship"):
            raise TimeoutError

    with Gateway(colour, work, sealer=Sealer(0)) as gateway:
        gateway.ask()
        charge, ship = gateway.journal.calls
        assert charge[:3] + charge[6:] == ("charge", charge.key, charge.target, "stripe", "ch_1")
        assert (charge.state, ship.state) == (CallState.RETURNED, CallState.BEGUN)
        assert len({charge.key, ship.key}) == 2
        assert (len(charge.key), len(ship.key)) == (64, 36)


class Seen(MemoryStore):
    """A store that shows its record at every write of a lease, and may fail or lose the reply."""

    def __init__(self) -> None:
        self.hands = ManualClock()
        super().__init__(self.hands)
        self.states: list[State] = []
        self.trouble = ""

    def renew(self, many: Any) -> Any:
        if self.trouble == "down":
            raise StoreUnavailable("the link is cut")
        answer = super().renew(many)
        self.states += [self.get(one.id).record.state for one in many]  # type: ignore[union-attr]
        if self.trouble:
            raise StoreUnavailable("the reply was lost")
        return answer


def test_latch_and_intent_are_one_write_before_the_call(colour: Colour) -> None:
    """When the block is entered the record says executing, and names the call; leaving it costs no write."""
    store = Seen()

    async def work(op: Any) -> None:
        async with op.external("charge"):
            assert store.states == [State.EXECUTING]
            assert gateway.journal.calls[0].state is CallState.BEGUN
        await op.begin()

    with Gateway(colour, work, store) as gateway:
        assert gateway.ask()[0] == 201
        assert len(store.states) == 1


@pytest.mark.parametrize("trouble", ["down", "lost"])
def test_without_a_stored_intent_no_call_is_made(colour: Colour, trouble: str) -> None:
    """The store cannot be reached, or its reply was lost: nothing leaves, the key is free, and that is noted."""
    store, called = Seen(), []

    async def work(op: Any) -> None:
        store.trouble = trouble
        async with op.external("charge"):
            called.append(1)

    with Gateway(colour, work, store) as gateway:
        assert gateway.ask()[2] == "not-executed"
        assert (called, gateway.state) == ([], State.FAILED_RETRYABLE)
        assert [call.state for call in gateway.journal.calls] == [CallState.NOT_EXECUTED]


def test_without_a_lease_no_call_is_made(colour: Colour) -> None:
    """The lease ended while the handler was busy: nothing leaves, and the key is free."""
    store, called = Seen(), []

    async def work(op: Any) -> None:
        store.hands.advance(60_000)
        async with op.external("charge"):
            called.append(1)

    with Gateway(colour, work, store) as gateway:
        assert gateway.ask()[2] == "not-executed"
        assert (called, gateway.state) == ([], State.FAILED_RETRYABLE)


def test_the_key_of_a_call_is_the_same_in_every_attempt(colour: Colour) -> None:
    """Also when the provider, and with it the length, was changed in the code since; another call has another."""
    keys: list[str] = []

    async def work(op: Any) -> None:
        async with op.external("charge", provider="stripe" if op.attempt == 1 else "paypal") as call:
            keys.append(call.key)
            if op.attempt == 1:
                raise NotExecuted
        async with op.external("refund", provider="paypal") as call:
            keys.append(call.key)
            assert call.headers == {"PayPal-Request-Id": call.key}

    with Gateway(colour, work) as gateway:
        assert [gateway.ask()[0] for _ in range(2)] == [503, 201]
    assert keys[0] == keys[1] != keys[2]
    assert [len(key) for key in keys] == [64, 64, 38]


def test_a_call_is_made_once_in_an_attempt(colour: Colour) -> None:
    """A loop over items would send one key for all; a call that failed may be tried again under its key."""
    keys: list[str] = []

    async def work(op: Any) -> None:
        for wanted in (TimeoutError, NotExecuted, None):
            try:
                async with op.external("charge") as call:
                    keys.append(call.key)
                    if wanted:
                        raise wanted
            except (TimeoutError, NotExecuted):
                pass
        with pytest.raises(ConfigurationError, match="'charge-2'"):
            async with op.external("charge"):
                keys.append("again")
        async with op.external("mail"):
            with pytest.raises(ConfigurationError, match="'mail-2'"):
                async with op.external("mail"):
                    keys.append("within")

    with Gateway(colour, work) as gateway:
        assert gateway.ask()[0] == 201
    assert len(keys) == 3
    assert len(set(keys)) == 1


@pytest.mark.parametrize("provider", ["strip", 3])
def test_a_provider_that_is_not_known_is_refused(colour: Colour, provider: Any) -> None:
    """With those that are, before anything leaves."""

    async def work(op: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"stripe.*Provider"):
            op.external("charge", provider=provider)
        with pytest.raises(ConfigurationError, match="name is a text"):
            op.external("")

    with Gateway(colour, work) as gateway:
        assert gateway.ask()[0] == 201


def test_what_an_earlier_attempt_left_open_stays_open(colour: Colour) -> None:
    """Taken over: the second attempt's call does not leave, and that says nothing of the first one's."""
    clock = ManualClock()
    store = MemoryStore(clock)
    seen: list[Any] = []

    async def work(op: Any) -> None:
        if op.attempt > 1:
            async with op.external("charge") as call:
                seen.append((gateway.journal.calls, call.key))
                raise NotExecuted
        async with op.external("charge"):
            clock.advance(60_000)
            seen.append(gateway.ask())
            raise SystemError

    with Gateway("wsgi", work, store, policy=REPEATED) as gateway:
        gateway.ask()
        [(calls, key), (_, _, problem)] = seen
        assert calls == (Call("charge", key, attempt=2),)
        assert problem == "not-executed"
        assert gateway.state is State.FAILED_RETRYABLE
        assert gateway.journal.calls == (Call("charge", key, attempt=1),)


def test_what_was_cleared_up_does_not_speak_against_the_next_attempt(colour: Colour) -> None:
    """An operator found that the open call did nothing: the next attempt that does nothing is believed."""

    async def work(op: Any) -> None:
        if op.attempt > 1:
            raise NotExecuted
        async with op.external("charge"):
            raise TimeoutError

    with Gateway(colour, work) as gateway:
        gateway.ask()
        found = gateway.store.get(gateway.record.id)
        freed = moved("override_retryable", found.record, Facts(found.now, reason="asked the bank"), Aftermath())
        assert freed is not None
        gateway.store.swap(Swap(found.record, freed))
        gateway.ask()
        assert (gateway.record.attempts, gateway.state) == (2, State.FAILED_RETRYABLE)


def test_a_key_of_ones_own_must_be_the_same_in_every_attempt(colour: Colour) -> None:
    """Where a lapsed attempt is repeated, another key would be another effect: refused before anything leaves."""
    keys = iter(["mine-1", "mine-2"])

    async def work(op: Any) -> None:
        async with op.external("charge", key=next(keys)):
            raise NotExecuted

    with Gateway(colour, work, policy=REPEATED) as gateway:
        gateway.ask()
        gateway.ask()
        assert gateway.record.note.startswith("ConfigurationError")
        assert gateway.journal.calls[0].key == "mine-1"


def test_an_unreadable_journal_stops_the_next_attempt_before_it_begins(colour: Colour) -> None:
    """The key that sealed it is gone: 503, nothing runs, and what stands in the record stays."""
    store, ran = MemoryStore(), []

    async def work(op: Any) -> None:
        ran.append(op.attempt)
        async with op.external("charge"):
            raise NotExecuted

    ring = {"k1": bytes(32)}
    with Gateway(colour, work, store, sealer=Sealer(keys=ring, current="k1")) as gateway:
        gateway.ask()
        written = gateway.journal
    with Gateway(colour, work, store, sealer=Sealer(keys={"k2": bytes(32)}, current="k2")) as other:
        assert [other.ask()[0] for _ in range(2)] == [503, 503]
    assert ran == [1]
    with Gateway(colour, work, store, sealer=Sealer(keys=ring, current="k1")) as gateway:
        while gateway.state is not State.FAILED_RETRYABLE:
            pass
        assert gateway.journal == written
