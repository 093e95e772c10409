"""What forms do: show what is masked, settle, have it asked about again. Each change is rehearsed, then confirmed."""

from __future__ import annotations

import logging

from oncekey import operations
from oncekey.console import desk
from oncekey.console.desk import Wish
from oncekey.console.views import PAGE, Guest, Views
from oncekey.console.web import Answered, Ask, Refused, see_other
from oncekey.core.keys import key_ref
from oncekey.core.record import Seen, State
from oncekey.engine.events import RESOLVED, Events, Sink
from oncekey.errors import ConfigurationError
from oncekey.operations import Desk

log = logging.getLogger("oncekey.audit")

MOVED_ON = "It has changed since you looked, so nothing was done. This is how it stands now."


def sentence(words: str) -> str:
    """An error's message as a sentence of a page."""
    words = words.strip()
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith(('.', '!', '?')) else '.'}"


class Acts:
    """The forms of one console."""

    def __init__(self, views: Views, sinks: tuple[Sink, ...] = ()) -> None:
        self.views = views
        self.said = Events(sinks)

    def act(self, ask: Ask, guest: Guest, id_: str, what: str) -> Answered:
        """What a form asks for."""
        if what == "reveal":
            seen = self.views.seen(id_)
            log.info("operation %s: shown in full to %s", key_ref(seen.record.id), guest.name)
            return self.views.told(ask, guest, seen, open=True)
        if what not in desk.KINDS:
            raise Refused(404, "There is nothing here", "The links above lead to what there is.")
        return self._change(ask, guest, self.views.seen(id_), what)

    def _change(self, ask: Ask, guest: Guest, seen: Seen, kind: str) -> Answered:
        filled = desk.BLANK | {name: value for name, value in ask.form.items() if name in desk.BLANK}
        mark = desk.mark(seen.record, operations.history(seen.record, self.views.sealer))
        if ask.form.get("mark") != mark or kind not in desk.offered(seen):
            return self.views.told(ask, guest, seen, status=409, wrong=MOVED_ON, kind=kind, filled=filled)
        try:
            wish = desk.wished(kind, ask.form, guest.name)
            change = desk.carried_out(self._desk(ask), seen, wish)
        except ConfigurationError as wrong:
            told = sentence(str(wrong))
            return self.views.told(ask, guest, seen, status=422, wrong=told, kind=kind, filled=filled)
        id_ = seen.record.id.hex()
        if change.moved_on:
            return self.views.told(ask, guest, self.views.seen(id_), status=409, wrong=MOVED_ON)
        if change.written:
            if kind != desk.ASK and seen.record.state is State.UNKNOWN:
                self.said.say(RESOLVED, seen.record.id, "by hand")
            return see_other(f"{ask.up}operations/{id_}?done={kind}")
        return self.views.page(
            "confirm.html", ask, guest, live=False, tab="operations", change=change, wish=wish, form=ask.form, kind=kind
        )

    def ask_all(self, ask: Ask, guest: Guest) -> Answered:
        """Have all dead letters of one page asked about again."""
        after = ask.form.get("after") or None
        try:
            wish = desk.wished(desk.ASK, ask.form, guest.name)
        except ConfigurationError as wrong:
            told = sentence(str(wrong))
            return self.views.dead(ask, guest, after, status=422, wrong=told, why=ask.form.get("why", ""))
        found = operations.dead_letters(self.views.store, after=after, limit=PAGE)
        seen = [Seen(record, found.now) for record in found.records]
        if ask.form.get("step") != "do":
            return self.views.page(
                "confirm-all.html", ask, guest, live=False, tab="dead-letters", found=found, wish=wish, after=after
            )
        asked = sum(self._asked(ask, one, wish) for one in seen)
        return see_other(f"{ask.up}dead-letters?asked={asked}")

    def _asked(self, ask: Ask, seen: Seen, wish: Wish) -> bool:
        try:
            return desk.carried_out(self._desk(ask), seen, wish).written
        except ConfigurationError as wrong:
            log.warning("operation %s was left alone: %s", key_ref(seen.record.id), wrong)
            return False

    def _desk(self, ask: Ask) -> Desk:
        """A rehearsal, unless it was confirmed."""
        return Desk(self.views.store, self.views.sealer, rehearse=ask.form.get("step") != "do")
