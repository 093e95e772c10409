"""Messages that are sent if, and only if, the transaction commits: staged in it, and sent by a relay afterwards."""

from oncekey.effects.outbox.blocks import Counts, Letter, Letters
from oncekey.effects.outbox.message import Outgoing
from oncekey.effects.outbox.operators import OutboxDesk
from oncekey.effects.outbox.relay import Pace, Relay, Report
from oncekey.effects.outbox.sending import Publisher
from oncekey.effects.outbox.staging import Outbox

__all__ = ["Counts", "Letter", "Letters", "Outbox", "OutboxDesk", "Outgoing", "Pace", "Publisher", "Relay", "Report"]
