"""What is said beside the result, on standard error: a sentence, or a JSON object on one line. Never a password."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from oncekey.cli.exits import Exit
from oncekey.operations import scrubbed


class Remarks:
    """Errors and warnings of one run; `url` and `to` are the stores' addresses, whose passwords are kept out."""

    def __init__(self, *, as_json: bool, url: str = "") -> None:
        self.as_json = as_json
        self.url = url
        self.to = ""

    def complain(self, message: str, code: Exit, error: BaseException) -> Exit:
        """Say why the command ends, and return the code it ends with."""
        text = self._clean(message)
        self._say(text, {"error": {"code": int(code), "kind": type(error).__name__, "message": text}})
        return code

    def warn(self, message: str) -> None:
        """Say what should be known although the command goes on."""
        text = self._clean(message)
        self._say(f"warning: {text}", {"warning": {"message": text}})

    def trace(self, text: str) -> None:
        """The trace of an error, for whoever asked for it."""
        print(scrubbed(scrubbed(text, self.url), self.to), file=sys.stderr, end="")

    def _clean(self, message: str) -> str:
        return " ".join(scrubbed(scrubbed(message, self.url), self.to).split())

    def _say(self, text: str, fields: dict[str, Any]) -> None:
        print(json.dumps(fields) if self.as_json else f"oncekey: {text}", file=sys.stderr)


class Overheard(logging.Handler):
    """Our own log's warnings as remarks."""

    def __init__(self, remarks: Remarks) -> None:
        super().__init__(logging.WARNING)
        self.remarks = remarks

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one on."""
        self.remarks.warn(record.getMessage())


def listen_to_logs(remarks: Remarks) -> None:
    """Warnings of ours become remarks; drivers' are silent, for what matters of them comes as an error."""
    # With no handler at all, Python would print them itself.
    logging.getLogger().addHandler(logging.NullHandler())
    ours = logging.getLogger("oncekey")
    for handler in list(ours.handlers):
        if isinstance(handler, Overheard):
            ours.removeHandler(handler)
    ours.addHandler(Overheard(remarks))
