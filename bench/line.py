"""A worker process, as the bench sees it: orders go out, answers come back."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.candidates import Candidate

ROOT = Path(__file__).parent.parent


class Line:
    """A started worker."""

    def __init__(self, candidate: Candidate, store: str, url: str, python: Path | None = None) -> None:
        self.name = candidate.name
        program = python or ROOT / candidate.venv / "bin" / "python"
        self.process = subprocess.Popen(
            [program, "-m", "bench.worker", candidate.name, store, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.read()

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        """One order, one answer."""
        self.write({"do": do, **order})
        return self.read()

    def write(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker of {self.name} ended with {self.process.wait()}; its words are above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            try:
                self.write({"do": "end"})
                self.process.wait(10)
            except (OSError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
