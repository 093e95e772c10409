"""The inbox for threads. Its twin is aio.py: read them side by side."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from oncekey.effects.inbox import parked
from oncekey.effects.inbox.drivers import Connect, Once, linked, talk
from oncekey.effects.inbox.flows import Item
from oncekey.effects.inbox.message import id_of
from oncekey.effects.inbox.parked import Counts, Page, Tidied
from oncekey.effects.inbox.rules import Verdict
from oncekey.effects.inbox.terms import Choices, Chosen, Rules, ran, refusing, result
from oncekey.effects.link import drive
from oncekey.errors import BadMessage


class Handler:
    """A function that handles each message once. If a call returns, acknowledge the message; if it raises, do not."""

    awaited = False

    def __init__(self, inbox: Inbox, rules: Rules) -> None:
        functools.update_wrapper(self, rules.work)
        self.rules = rules
        self.inbox = inbox
        self._once = Once(inbox.connect, inbox.choices.table, rules.call)

    def __call__(self, message: Any) -> Any:
        """Handle a message and return what the function returned, or None where there was nothing to do."""
        return result(self.deliver(message))

    def deliver(self, message: Any) -> Verdict:
        """Handle a message and say what is to become of it. Whatever the function raises is in the verdict."""
        item, flow = self.rules.delivery(message)
        verdict = self._once(flow)
        self.rules.say(item, verdict)
        return verdict

    def deliver_many(self, messages: Sequence[Any]) -> list[Verdict]:
        """Handle several in one transaction; in ordered mode, they are of one partition and in order."""
        try:
            items, flow = self.rules.deliveries(messages)
        except BadMessage:
            return [self.deliver(message) for message in messages]
        verdicts = self._once(flow)
        for item, verdict in zip(items, verdicts, strict=True):
            self.rules.say(item, verdict)
        return verdicts

    def within(self, connection: Any, message: Any) -> bool:
        """Handle a message in your own transaction, which you end. False: it had been handled before."""
        self.rules.check_window()
        block = self.rules.terms.mode.run([self.rules.item(message)])
        link = linked(connection, awaited=False)
        talking = talk(block, link, self.inbox.choices.table, lambda message: self.rules.call(message, connection))
        (verdict,) = drive(talking)
        result(verdict)
        return ran(verdict)

    def run_requeued(self) -> Verdict | None:
        """Run one parked message that an operator wants run again; None where there is none."""
        kept = self._once.together(parked.take(self.rules.choices.consumer, self.rules.source))
        if kept is None:
            return None
        verdict = self._once(parked.run(self.rules, kept))
        self.rules.say(Item(kept.name, None), verdict)
        return verdict


class Inbox:
    """Where messages are remembered: in your own database, in the transactions of their handlers.

    `connect` gives a context manager whose value is a connection: a pool's `connection`, a `sessionmaker`, Django's
    `transaction.atomic`. What else may be chosen is in terms.Chosen.
    """

    awaited = False

    def __init__(self, connect: Connect, **chosen: Unpack[Chosen]) -> None:
        self.connect = connect
        self.choices = Choices(chosen)
        self._once = Once(connect, self.choices.table, lambda message, given: None)

    def once(
        self,
        source: str,
        *,
        id: Callable[[Any], object] = id_of,  # noqa: A002 - what it is, in the reader's word
        ordered: bool = False,
    ) -> Callable[[Callable[..., Any]], Handler]:
        """Make a function handle each message of a source once. `id` finds a message's id; ordered mode needs none."""

        def decorate(work: Callable[..., Any]) -> Handler:
            rules = Rules(self.choices, source, work, id, ordered=ordered)
            rules.check_colour(awaited=False)
            self.choices.add(rules)
            return Handler(self, rules)

        return decorate

    def migrate(self) -> None:
        """Make the tables, where they are not there."""
        self._once.together(parked.migrate())

    def check(self) -> None:
        """Refuse to begin without tables, or on a connection that cannot be used."""
        with refusing(self.choices.table):
            self._once.together(parked.handled("", "", "check"))

    def parked(self, source: str | None = None, *, after: tuple[int, bytes] | None = None, limit: int = 100) -> Page:
        """A page of this consumer's parked messages, oldest first."""
        return self._once.together(parked.listing(self.choices.consumer, source, after, limit))

    def requeue(self, id_: bytes) -> bool:
        """Let a parked message be run again by its consumer. False: it is not parked."""
        return self._once.together(parked.change("requeue", id_))

    def discard(self, id_: bytes) -> bool:
        """Forget a parked message. False: it is not parked."""
        return self._once.together(parked.change("discard", id_))

    def handled(self, source: str, message_id: str) -> bool:
        """Whether a message was handled, and is remembered."""
        return self._once.together(parked.handled(self.choices.consumer, source, message_id))

    def place(self, source: str, partition: int) -> int | None:
        """Ordered mode: the offset that a partition was handled up to."""
        return self._once.together(parked.place(self.choices.consumer, source, partition))

    def forget_places(self, source: str) -> int:
        """Ordered mode: begin anew with a topic that was made anew."""
        return self._once.together(parked.forget_places(self.choices.consumer, source))

    def purge(self, limit: int = 500) -> Tidied:
        """Forget one small batch of what need not be remembered any longer."""
        return self._once.together(parked.purge(limit))

    def count(self) -> Counts:
        """How much there is."""
        return self._once.together(parked.count())
