"""Messages that come more than once are handled once: their names are kept in the transactions of their handlers."""

from oncekey.effects.inbox.aio import AsyncHandler, AsyncInbox
from oncekey.effects.inbox.message import ID_HEADER, Message, by_header
from oncekey.effects.inbox.parked import Counts, Page, Parked, Tidied
from oncekey.effects.inbox.rules import GivenUp, Handled, Later, Patience, Verdict
from oncekey.effects.inbox.threads import Handler, Inbox

__all__ = [
    "ID_HEADER",
    "AsyncHandler",
    "AsyncInbox",
    "Counts",
    "GivenUp",
    "Handled",
    "Handler",
    "Inbox",
    "Later",
    "Message",
    "Page",
    "Parked",
    "Patience",
    "Tidied",
    "Verdict",
    "by_header",
]
