"""What both colours of an inbox share: its choices, its handlers, and the flows that they run. Pure."""

from __future__ import annotations

import hashlib
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict

from oncekey.effects.inbox.flows import ById, ByPlace, Flow, Item, Terms, deliver, deliver_many, refuse
from oncekey.effects.inbox.message import Message, keep, named, placed
from oncekey.effects.inbox.rules import GivenUp, Handled, Later, Patience, Verdict, reason_of
from oncekey.effects.inbox.statements import TABLE, checked
from oncekey.effects.inbox.window import DAY, Window
from oncekey.engine import events
from oncekey.engine.events import Events, Sink
from oncekey.errors import BadMessage, ConfigurationError, OnceKeyError, RedeliverLater, SchemaMissing

SAID = {"done": events.MESSAGE_DONE, "duplicate": events.MESSAGE_DUPLICATE, "parked": events.MESSAGE_PARKED}


class Chosen(TypedDict, total=False):
    """What may be chosen for an inbox, beside where it keeps its tables."""

    consumer: str
    keep_for: float | None
    redelivery_for: float | None
    patience: Patience
    table: str
    sinks: tuple[Sink, ...]


class Choices:
    """What the user chose for an inbox, checked."""

    def __init__(self, chosen: Chosen) -> None:
        unknown = set(chosen) - set(Chosen.__annotations__)
        if unknown:
            known = ", ".join(sorted(Chosen.__annotations__))
            raise ConfigurationError(f"an inbox has no {', '.join(sorted(unknown))}: it has {known}")
        self.consumer = chosen.get("consumer", "")
        self.window = Window(chosen.get("keep_for", 14 * DAY), chosen.get("redelivery_for"))
        self.patience = chosen.get("patience", Patience())
        self.table = checked(chosen.get("table", TABLE))
        self.said = Events(chosen.get("sinks", ()))
        # Whether the window was compared with anything: by what the user says, or by what a broker says.
        self.compared = self.window.redelivery_for is not None or self.window.keep_for is None
        self.handlers: dict[str, Rules] = {}

    @property
    def keep_for(self) -> int | None:
        """The window, in milliseconds."""
        return None if self.window.keep_for is None else round(self.window.keep_for * 1000)

    def compare(self, horizon: float | None, broker: str) -> None:
        """Compare the window with what a broker says of itself; ConfigurationError where it is too short."""
        self.window.check(horizon, broker)
        self.compared = True

    def add(self, rules: Rules) -> None:
        """Take a handler in; two for one source would each take the other's messages for handled."""
        there = self.handlers.get(rules.source)
        if there is not None and there.called != rules.called:
            raise ConfigurationError(
                f"{there.called} and {rules.called} both handle {rules.source!r}: each would take the other's messages "
                f"for its own. Give one of them an Inbox of its own, with another consumer="
            )
        self.handlers[rules.source] = rules


class Rules:
    """One handler: what it handles, how its messages are named, and how it is called."""

    def __init__(
        self, choices: Choices, source: str, work: Callable[..., Any], id_: Callable[[Any], object], *, ordered: bool
    ) -> None:
        if not source:
            raise ConfigurationError("the source is empty: write who gives the messages their ids, such as 'orders'")
        self.choices = choices
        self.source = source
        self.work = work
        self.ordered = ordered
        self.called = f"{work.__module__}.{getattr(work, '__qualname__', work)}"
        self._id = id_
        self._with_connection = _takes_connection(work)
        keep_for = choices.keep_for
        self.terms = Terms(choices.patience, ByPlace() if ordered else ById(keep_for), keep_for)

    def check_colour(self, *, awaited: bool) -> None:
        """Refuse a function of the other colour: it would never run, or nobody would wait for it."""
        if inspect.iscoroutinefunction(self.work) is not awaited:
            other, fit = ("Inbox", "async def") if awaited else ("AsyncInbox", "a plain def")
            raise ConfigurationError(f"{self.called} does not fit here: make it {fit}, or use {other}")

    def check_window(self) -> None:
        """Refuse to begin while nobody has said for how long a message may come again."""
        if not self.ordered and not self.choices.compared:
            raise ConfigurationError(
                "nobody has said for how long a message may come again: write redelivery_for=, in seconds, with the "
                "broker's retention and all replays from dead letters in it; or keep_for=None, which forgets nothing"
            )

    def item(self, message: Any, *, again: bool = False) -> Item:
        """A message with its name; BadMessage if it has none."""
        choices = self.choices
        late = choices.window.late(getattr(message, "sent_at", None), time.time())
        if not self.ordered:
            return Item(named(choices.consumer, self.source, self._found_id(message)), message, None, late)
        if not isinstance(message, Message) or message.place is None:
            raise BadMessage("ordered mode needs the message's place: give a Message with place=(partition, offset)")
        return Item(placed(choices.consumer, self.source, message.place), message, message.place)

    def _found_id(self, message: Any) -> object:
        try:
            return self._id(message)
        except BadMessage:
            raise
        except Exception as error:
            raise BadMessage(f"id= failed on it: {reason_of(error)}") from error

    def nameless(self, message: Any) -> Item:
        """A name for what has none, so that it can be parked: its content."""
        kept = keep(message)
        digest = hashlib.sha256(kept.headers + kept.body).hexdigest()[:32]
        return Item(named(self.choices.consumer, self.source, f"nameless-{digest}"), message)

    def call(self, message: Any, given: Any) -> Any:
        """Call the handler; one that has no use for the connection is not given it."""
        return self.work(message, given) if self._with_connection else self.work(message)

    def delivery(self, message: Any) -> tuple[Item, Flow[Verdict]]:
        """A message, and the flow that handles it."""
        self.check_window()
        try:
            item = self.item(message)
        except BadMessage as error:
            item = self.nameless(message)
            return item, refuse(self.terms, item, error)
        return item, deliver(self.terms, item)

    def deliveries(self, messages: Sequence[Any]) -> tuple[list[Item], Flow[list[Verdict]]]:
        """Several messages, and the flow that handles them together; those without a name must come alone."""
        self.check_window()
        items = [self.item(message) for message in messages]
        return items, deliver_many(self.terms, items)

    def say(self, item: Item, verdict: Verdict) -> None:
        """Tell the sinks."""
        name = SAID[verdict.how] if isinstance(verdict, Handled) else events.MESSAGE_LATER
        self.choices.said.say(name, item.name.id, getattr(verdict, "reason", ""))


def result(verdict: Verdict) -> Any:
    """A verdict as a call ends: a value, or an error that keeps the message from being acknowledged."""
    if isinstance(verdict, Handled):
        return verdict.value
    if isinstance(verdict, GivenUp):
        raise BadMessage(verdict.reason)
    if isinstance(verdict, Later) and verdict.error is not None:
        raise verdict.error
    raise RedeliverLater(verdict.reason, verdict.after)


def ran(verdict: Verdict) -> bool:
    """Whether the handler ran just now."""
    return isinstance(verdict, Handled) and verdict.how == "done"


@contextmanager
def refusing(table: str) -> Iterator[None]:
    """Turn the complaint about a missing table into what to do about it."""
    try:
        yield
    except OnceKeyError:
        raise
    except Exception as error:
        if table.rpartition(".")[2] not in str(error):
            raise
        raise SchemaMissing(
            "the inbox has no tables yet: call inbox.migrate(), or run `oncekey inbox migrate`"
        ) from error


def _takes_connection(work: Callable[..., Any]) -> bool:
    asked = [
        parameter
        for parameter in inspect.signature(work).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    if not asked:
        raise ConfigurationError(f"{work!r} takes no message: write def handle(message, connection), or (message)")
    return len(asked) > 1 or asked[0].kind is asked[0].VAR_POSITIONAL
