"""Each line of the user's own code is a step. Seen by `sys.settrace`, so that a handler needs no marks."""

from __future__ import annotations

import sys
import sysconfig
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from oncekey.testing.crashes.steps import Place, Steps, thrown

Mine = Callable[[str], bool]

_OTHERS = tuple({str(Path(path)) for path in sysconfig.get_paths().values()} | {str(Path(__file__).parents[2])})


def own_code(file: str) -> bool:
    """Whether a file is the user's: not Python's, not an installed package's and not ours."""
    return not file.startswith(("<", *_OTHERS))


class Tracing:
    """While it is entered, lines of the user's code are steps, in this thread and in threads that start meanwhile."""

    def __init__(self, steps: Steps, mine: Mine = own_code) -> None:
        self._steps = steps
        self._mine = mine
        self._known: dict[str, bool] = {}
        self._before: tuple[Any, Any] = (None, None)

    def __enter__(self) -> None:
        self._before = (sys.gettrace(), threading.gettrace())
        threading.settrace(self._called)
        sys.settrace(self._called)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(self._before[0])
        threading.settrace(self._before[1])

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        file = frame.f_code.co_filename
        known = self._known.get(file)
        if known is None:
            known = self._known[file] = self._mine(file)
        return self._line if known else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            code = frame.f_code
            way = self._steps.reach(Place.LINE, f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_name}")
            if way is not None:
                raise thrown(way)
        return self._line


__all__ = ["Mine", "Tracing", "own_code"]
