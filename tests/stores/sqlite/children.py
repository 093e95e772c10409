"""Child processes for tests: forked, so that what the parent had open is there; or new, as another worker would be."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable


def fork() -> int:
    """Fork, also where threads run: that this is unwise in general is known, and what is tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_child(work: Callable[[], str]) -> str:
    """Fork, do the work there, and return its text; an exception's text begins with `raised`."""
    reading, writing = os.pipe()
    pid = fork()
    if pid == 0:
        try:
            said = work()
        except BaseException:
            said = f"raised {traceback.format_exc()}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


def new_process(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Run a script in a Python of its own; it may print, and wait for lines on its standard input."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
