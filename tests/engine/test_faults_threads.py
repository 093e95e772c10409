from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from oncekey.core.commands import Won
from oncekey.core.record import Seen, State
from oncekey.engine.common import seen
from oncekey.engine.threaded import Engine
from oncekey.engine.threads import ThreadCombiner
from oncekey.engine.tuning import Tuning
from oncekey.errors import ConfigurationError, MissingExtra, StoreUnavailable
from oncekey.stores.memory import MemoryStore
from tests.engine.stubs import TERMS, Same, Shaky, claim
from tests.engine.test_front import attempt_on, completed


class Ask(NamedTuple):
    id: bytes
    value: int = 0


class Script:
    """A store verb that waits to be let go, then meets each call with the next step: an error, or None to answer."""

    def __init__(self, *steps: BaseException | None) -> None:
        self.steps = list(steps)
        self.go, self.entered = threading.Event(), threading.Event()

    def __call__(self, many: Sequence[Ask]) -> list[int]:
        self.entered.set()
        self.go.wait(10)
        step = self.steps.pop(0) if self.steps else None
        if step is not None:
            raise step
        return [ask.value for ask in many]


def queued(combiner: ThreadCombiner[Ask, int], count: int) -> None:
    while len(combiner._queue) < count:
        threading.Event().wait(0.001)


def run(script: Any, followers: int, entered: threading.Event) -> tuple[list[Any], ThreadCombiner[Ask, int]]:
    """One leader and so many threads behind it; what became of each."""
    combiner: ThreadCombiner[Ask, int] = ThreadCombiner(script, Tuning(lanes=1))
    pool = ThreadPoolExecutor(followers + 1)
    first = pool.submit(combiner, Ask(b"first"))
    entered.wait(10)
    rest = [pool.submit(combiner, Ask(b"%d" % number, number)) for number in range(followers)]
    queued(combiner, followers)
    script.go.set()
    ends = [future.exception(5) or future.result() for future in (first, *rest)]
    pool.shutdown()
    return ends, combiner


@pytest.mark.parametrize("fault", [ZeroDivisionError(), SystemExit(1)])
def test_a_fault_while_asking_singly_leaves_no_thread_asleep(fault: BaseException) -> None:
    """The batch fails, then a single one fails in another way: all threads wake up and the lead is given back."""
    script = Script(None, StoreUnavailable("refused"), fault)
    ends, combiner = run(script, 4, script.entered)
    assert len(ends) == 5
    assert combiner._leaders == 0


def test_a_verb_that_answers_too_few_leaves_no_thread_asleep() -> None:
    """A store that breaks its contract is a store that could not be asked."""

    class Short(Script):
        def __call__(self, many: Sequence[Ask]) -> list[int]:
            return super().__call__(many)[:1]

    script = Short()
    ends, combiner = run(script, 3, script.entered)
    assert [type(end) for end in ends] == [int] + [StoreUnavailable] * 3
    assert combiner._leaders == 0


def test_an_error_that_cannot_be_copied_leaves_no_thread_asleep() -> None:
    """An error whose making takes other words than it holds is told to all as it is."""
    script = Script(None, *[MissingExtra("the store x://", "x")] * 9)
    combiner: ThreadCombiner[Ask, int] = ThreadCombiner(script, Tuning(lanes=1, store_for=0.0))
    script.go.set()
    combiner(Ask(b"0"))
    with pytest.raises(ConfigurationError, match="pip install"):
        combiner(Ask(b"1"))


def test_a_sleeper_that_is_interrupted_does_not_take_the_lead_to_the_grave() -> None:
    """A signal ends the wait of the main thread: whoever comes after it is still served."""
    script = Script()
    combiner: ThreadCombiner[Ask, int] = ThreadCombiner(script, Tuning(lanes=1))

    def interrupt() -> None:
        queued(combiner, 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(combiner, Ask(b"first", 1))
        script.entered.wait(10)
        # A run that a shell has put into the background ignores the signal.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            combiner(Ask(b"main"))
        signal.signal(signal.SIGINT, before)
        script.go.set()
        assert first.result(5) == 1
        assert pool.submit(combiner, Ask(b"next", 2)).result(5) == 2
    assert combiner._leaders == 0


class Broken(Shaky):
    """A store whose driver throws an error of its own, before or after it has done what it was asked."""

    fault: BaseException | None = None

    def _do(self, verb: str, many: Sequence[Any]) -> Any:
        answer = super()._do(verb, many)
        if self.fault is not None and verb != "renew":
            fault, self.fault = self.fault, None
            raise fault
        return answer


@pytest.mark.parametrize("fault", [ZeroDivisionError(), SystemExit(1)])
def test_an_outcome_is_owed_whatever_the_store_throws(fault: BaseException) -> None:
    """A driver's own error, or a worker's time limit, at the settlement: the outcome is offered again."""
    store = Broken()
    engine, first = Engine(store), claim()
    engine.keeper._open_writer = lambda: _writer(store)
    attempt = attempt_on(first, engine.enter(first, Same(), TERMS))
    store.fault, store.inner_settle = fault, None  # type: ignore[attr-defined]
    store._do, real = _refuse_once(store._do, fault), store._do  # type: ignore[method-assign]
    with pytest.raises((StoreUnavailable, SystemExit)):
        engine.settle(attempt, completed(first))
    store._do = real  # type: ignore[method-assign]
    wait_for_state(store, first.id, State.COMPLETED)


def _refuse_once(do: Any, fault: BaseException) -> Any:
    def refuse(verb: str, many: Any) -> Any:
        raise fault

    return refuse


def _writer(store: Any) -> Any:
    from oncekey.engine.keeper import Writer

    return Writer(store.inner.renew, store.inner.settle)


def wait_for_state(store: Shaky, id_: bytes, state: State) -> None:
    for _ in range(5000):
        seen = store.inner.get(id_)
        if seen is not None and seen.record.state is state:
            return
        threading.Event().wait(0.001)
    raise AssertionError(store.inner.get(id_))


@pytest.mark.parametrize("fault", [ZeroDivisionError(), SystemExit(1)])
def test_a_claim_is_given_back_whatever_the_store_throws(fault: BaseException) -> None:
    """The claim was granted and then the driver failed: the key is not shut for a lease."""
    store = Broken()
    engine, first = Engine(store), claim()
    engine.keeper._open_writer = lambda: _writer(store)
    store.fault = fault
    with pytest.raises((StoreUnavailable, SystemExit)):
        engine.enter(first, Same(), TERMS)
    wait_for_state(store, first.id, State.FAILED_RETRYABLE)


def test_the_first_commands_after_a_fork_are_all_answered() -> None:
    """Many threads meet a forked combiner: it begins anew once, and nobody queues where none looks."""
    begun: list[int] = []
    combiner: ThreadCombiner[Ask, int] = ThreadCombiner(lambda many: [ask.value for ask in many], Tuning(lanes=1))
    reset, start = combiner._reset, threading.Barrier(8)

    def slowly() -> None:
        begun.append(threading.get_ident())
        threading.Event().wait(0.05)
        reset()

    def ask(number: int) -> int:
        start.wait(5)
        return combiner(Ask(b"%d" % number, number))

    combiner._reset, combiner._pid = slowly, -1  # type: ignore[method-assign]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == list(range(8))
    assert (len(begun), combiner._leaders) == (1, 0)


def test_duplicates_in_the_queue_share_one_question() -> None:
    """As under asyncio: the winner's, and one for all who stood behind it."""
    store, asked, entered, go = MemoryStore(), [], threading.Event(), threading.Event()

    def send(many: Sequence[Any]) -> Any:
        asked.append(len(many))
        entered.set()
        go.wait(10)
        return store.claim(many)

    combiner: ThreadCombiner[Any, Any] = ThreadCombiner(send, Tuning(lanes=1), shared=seen)
    with ThreadPoolExecutor(40) as pool:
        first = pool.submit(combiner, claim("other"))
        entered.wait(10)
        held = [pool.submit(combiner, claim("hot")) for _ in range(39)]
        queued(combiner, 39)
        go.set()
        answers = [future.result(10) for future in (first, *held)]
    assert sum(isinstance(answer, Won) for answer in answers) == 2
    assert sum(isinstance(answer, Seen) for answer in answers) == 38
    assert len(asked) <= 3
    assert combiner._leaders == 0


def test_duplicates_fail_together() -> None:
    """While a store is away they do not wait for its time budget one after the other; and each has its own error."""
    script = Script(None, *(StoreUnavailable("away") for _ in range(99)))
    combiner: ThreadCombiner[Ask, int] = ThreadCombiner(script, Tuning(lanes=1), shared=lambda answer: True)
    with ThreadPoolExecutor(21) as pool:
        first = pool.submit(combiner, Ask(b"first"))
        script.entered.wait(10)
        held = [pool.submit(combiner, Ask(b"hot", number)) for number in range(20)]
        queued(combiner, 20)
        script.go.set()
        errors = [future.exception(10) for future in held]
    assert first.result(5) == 0
    assert {type(error) for error in errors} == {StoreUnavailable}
    assert len({id(error) for error in errors}) == 20
    assert len(script.steps) >= 99 - 2
