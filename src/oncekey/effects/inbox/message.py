"""What comes in: a message, the name it has for us, and what is kept of one that had to be put aside.

A message is named by its consumer, its source and its id. The source says who gave the id: two producers may well give
the same one. The consumer says who handles it: two handlers of one message are two effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from oncekey.core.keys import record_id
from oncekey.errors import BadMessage

# Where the outbox of this project puts its message ids, in the headers of every broker.
ID_HEADER: Final = "oncekey-id"
LONGEST_ID: Final = 512
_SHOWN: Final = 2000

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Message:
    """One message, whatever broker brought it. `raw` is the broker's own object; a message run again has none.

    `place` is its partition and offset, where the broker has them. `sent_at` is in seconds since the epoch.
    """

    source: str
    body: bytes
    id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    sent_at: float | None = None
    redelivered: bool = False
    place: Place | None = None
    raw: Any = field(default=None, repr=False, compare=False)

    def json(self) -> Any:
        """The body, read as JSON."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise BadMessage(f"the body is no JSON: {error}") from error


class Named(NamedTuple):
    """A message with its name: `id` is what the tables know it by."""

    id: bytes
    consumer: str
    source: str
    message_id: str


def named(consumer: str, source: str, message_id: object) -> Named:
    """Give a message its name; refuse what names nothing, or not for long."""
    text = _text(message_id)
    return Named(record_id(("inbox", consumer, source), text), consumer, source, text)


def placed(consumer: str, source: str, place: Place) -> Named:
    """The name of a message in ordered mode, needed only when it makes trouble."""
    return named(consumer, source, f"{place[0]}/{place[1]}")


def _text(message_id: object) -> str:
    if isinstance(message_id, UUID):
        return str(message_id)
    if isinstance(message_id, bytes):
        message_id = message_id.decode("utf-8", "surrogateescape")
    if not isinstance(message_id, str):
        if message_id is None:
            raise BadMessage("the message has no id: give id=, a function that returns what its producer named it")
        raise BadMessage(
            f"the id {message_id!r} is no text: write str(...) around it if it names the message for ever; an offset "
            f"does not, for offsets begin anew with the topic"
        )
    if not message_id or len(message_id) > LONGEST_ID:
        raise BadMessage(f"the message's id has {len(message_id)} characters: it must have 1 to {LONGEST_ID}")
    return message_id


def id_of(message: Any) -> object:
    """What an id is taken from unless the handler says otherwise: the message's own id."""
    return message.id if isinstance(message, Message) else None


def by_header(name: str) -> Callable[[Message], object]:
    """An id that stands in a header of the message."""
    return lambda message: message.headers.get(name)


class Kept(NamedTuple):
    """A message as it is kept while it is parked. `form` says how to make it again."""

    form: str
    headers: bytes
    body: bytes


def keep(message: Any) -> Kept:
    """What is kept of a message; of what cannot be made again, its looks."""
    if isinstance(message, Message):
        about = {"headers": dict(message.headers), "key": message.key, "sent_at": message.sent_at}
        return Kept("message", orjson.dumps(about | {"place": message.place}), message.body)
    if isinstance(message, bytes):
        return Kept("bytes", b"{}", message)
    try:
        return Kept("json", b"{}", orjson.dumps(message, option=orjson.OPT_STRICT_INTEGER))
    except TypeError:
        return Kept("shown", b"{}", repr(message)[:_SHOWN].encode("utf-8", "replace"))


def kept_again(kept: Kept, source: str, message_id: str) -> Any:
    """The message made again. One of which only its looks were kept is refused."""
    if kept.form == "message":
        about = orjson.loads(kept.headers)
        place = about["place"]
        return Message(
            source,
            kept.body,
            message_id,
            about["headers"],
            about["key"],
            about["sent_at"],
            redelivered=True,
            place=(place[0], place[1]) if place else None,
        )
    if kept.form == "bytes":
        return kept.body
    if kept.form == "json":
        return orjson.loads(kept.body)
    raise BadMessage("only the looks of this message were kept: send it again from where it came")
