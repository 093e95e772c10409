"""With which code a command ends, and which error means which."""

from __future__ import annotations

from enum import IntEnum

from oncekey.errors import ConfigurationError, OnceKeyError, SchemaMissing, StoreUnavailable, UnsafeStore


class Exit(IntEnum):
    """The exit codes; their meanings are in --help and in docs/cli.md."""

    OK = 0
    FOUND = 1
    USAGE = 2
    UNSAFE = 3
    UNREACHABLE = 4
    BUG = 70
    INTERRUPTED = 130
    CUT_OFF = 141


MEANINGS: dict[Exit, str] = {
    Exit.OK: "all is well",
    Exit.FOUND: "something was found wrong, or what was asked for was not found",
    Exit.USAGE: "the command or the configuration is wrong",
    Exit.UNSAFE: "the store must not be used as it is: unsafe settings, or a missing or other schema",
    Exit.UNREACHABLE: "the store did not answer",
    Exit.BUG: "a defect of oncekey itself",
    Exit.INTERRUPTED: "interrupted (Ctrl-C or SIGTERM); what was done is reported",
    Exit.CUT_OFF: "whoever read the output went away",
}

# The first that fits, so subclasses come before their parents.
CODES: tuple[tuple[type[Exception], Exit], ...] = (
    (SchemaMissing, Exit.UNSAFE),
    (UnsafeStore, Exit.UNSAFE),
    (ConfigurationError, Exit.USAGE),
    (StoreUnavailable, Exit.UNREACHABLE),
    (OnceKeyError, Exit.FOUND),
    (OSError, Exit.FOUND),
)


def code_of(error: BaseException) -> Exit:
    """The exit code for an error; what nobody foresaw is a defect."""
    return next((code for kind, code in CODES if isinstance(error, kind)), Exit.BUG)
