"""Runs the Python blocks of one page in order in one namespace: `python child.py PAGE`, the blocks on standard input.

A process of its own, so that a page can leave threads and open files behind like the program that it shows.
"""

from __future__ import annotations

import json
import logging
import sys
import types
import warnings


class Traces(logging.StreamHandler):
    """What OnceKey says is part of an example; a trace in its log is a fault."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Only what carries a trace is shown, and what is shown fails the page."""
        return bool(record.exc_info)


def main() -> None:
    """Compile each block under the page's own name and lines, so that a trace points into the page."""
    logging.getLogger("oncekey").addHandler(Traces())
    # Starlette's test client prefers a successor of httpx that few people have yet; it works with either.
    warnings.filterwarnings("ignore", message=r"Using `httpx` with `starlette\.testclient` is deprecated")
    # A module of its own: dataclasses and type hints look their names up there.
    module = types.ModuleType("example")
    sys.modules["example"] = module
    for line, text in json.load(sys.stdin):
        code = compile("\n" * (line - 1) + text, sys.argv[1], "exec")
        exec(code, module.__dict__)


if __name__ == "__main__":
    main()
