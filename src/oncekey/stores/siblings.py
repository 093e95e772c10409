"""Whether other workers of the same server run beside this process: they would not see records in its memory."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys

_held: dict[str, socket.socket] = {}


def alone() -> bool:
    """Take the place of the only worker under our parent; False if a sibling has it already.

    Only worker processes of a server ask: the place is a name in the kernel that goes away with its process. Where
    there are no such names (all but Linux) nobody can tell, and we count as alone.
    """
    if not sys.platform.startswith("linux") or not _is_worker():
        return True
    name = f"\0oncekey-memory-{os.getuid()}-{os.getppid()}"
    if name in _held:
        return True
    place = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        place.bind(name)
    except OSError:
        place.close()
        return False
    _held[name] = place
    return True


def _is_worker() -> bool:
    # uvicorn and hypercorn start workers by multiprocessing; gunicorn and granian leave their names.
    return multiprocessing.parent_process() is not None or "gunicorn" in os.environ.get("SERVER_SOFTWARE", "")
