"""What went wrong with the server, in a sentence that says what to do. Never a password."""

from __future__ import annotations

from typing import Any

import redis.exceptions as wrong

from oncekey.errors import StoreUnavailable

# The first word of a refusal -> what it means and what to do.
SAID: dict[str, str] = {
    "OOM": "Redis is out of memory (maxmemory): raise maxmemory, or shorten keep_for; records are never evicted",
    "READONLY": "this Redis is a read-only replica: let store= name the primary",
    "MISCONF": "Redis cannot write its snapshots and refuses writes: look at its log and its disk",
    "LOADING": "Redis is still loading its data: try again shortly",
    "BUSY": "a script of somebody else keeps Redis busy: SCRIPT KILL ends it",
    "MASTERDOWN": "this Redis replica has lost its primary: let store= name the primary",
    "NOREPLICAS": "Redis wants more replicas than it has (min-replicas-to-write): start them, or lower the setting",
    "CLUSTERDOWN": "the Redis Cluster does not serve all slots: look at CLUSTER INFO",
    "MOVED": "this is a node of a Redis Cluster: let store= name a standalone server",
    "NOAUTH": "Redis asks for a user and password, or refuses those of store=: write redis://user:password@host",
    "WRONGPASS": "Redis refuses the user or password of store=: write redis://user:password@host",
    "NOPERM": "the Redis user may not do this: it needs EVAL, EVALSHA, what the scripts call, our keys and our channel",
    "WRONGTYPE": "another program uses our keys: give OnceKey a database or a prefix= of its own",
}


def refused(error: Exception) -> StoreUnavailable:
    """The server answered with an error."""
    word = _word(error)
    known = SAID.get(word)
    said = f"{known} (Redis said: {word})" if known else f"Redis refused: {error}"
    failed = StoreUnavailable(said)
    failed.__cause__ = error
    return failed


def unreachable(error: BaseException, where: str, store_for: float) -> StoreUnavailable:
    """There was no answer."""
    if isinstance(
        error, wrong.ResponseError | wrong.AuthenticationError | wrong.AuthorizationError | wrong.BusyLoadingError
    ):
        return refused(error)
    if isinstance(error, wrong.TimeoutError | TimeoutError):
        said = f"Redis at {where} did not answer within {store_for:g} s"
    else:
        said = f"Redis at {where} cannot be reached; is it running, and is store= right? ({_plain(error)})"
    failed = StoreUnavailable(said)
    failed.__cause__ = error
    return failed


def _word(error: Exception) -> str:
    """The code of a refusal: redis-py cuts it off where it has a class for it."""
    code = getattr(error, "status_code", None) or CODES.get(type(error))
    return code or str(error).split(" ", 1)[0].strip("-:")


# The classes behind which redis-py hides the code. Within scripts it is not cut off.
CODES: dict[type[Exception], str] = {
    wrong.OutOfMemoryError: "OOM",
    wrong.ReadOnlyError: "READONLY",
    wrong.BusyLoadingError: "LOADING",
    wrong.AuthenticationError: "NOAUTH",
    wrong.NoPermissionError: "NOPERM",
    wrong.MasterDownError: "MASTERDOWN",
    wrong.ClusterDownError: "CLUSTERDOWN",
    wrong.MovedError: "MOVED",
}


def _plain(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def sound(reply: Any) -> Any:
    """The reply, unless it is the server's refusal."""
    if isinstance(reply, Exception):
        raise refused(reply)
    return reply
