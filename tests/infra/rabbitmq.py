"""RabbitMQ: one node of its own, with its own port mapper, so that neither meets a broker of this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import ClassVar

from tests.infra.process import EngineMissing, Server, ServerFailed, as_user, free_port

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
CONTROL = PROGRAM.with_name("rabbitmqctl")


class PortMapper(Server):
    """Erlang's port mapper, which a node would otherwise start by itself and leave behind."""

    name: ClassVar[str] = "epmd"
    user: ClassVar[str | None] = "rabbitmq"

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        if found := shutil.which("epmd"):
            return [found, "-port", str(self.port), "-address", "127.0.0.1"]
        raise EngineMissing("RabbitMQ is not installed; run: tools/provision servers")

    def answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False


class RabbitServer(Server):
    """A broker with user guest on the vhost /. Its first start takes five to eight seconds.

    Durable classic queues keep persistent messages over a kill, but the newest *definitions* stand in a log that a kill
    may cost (2 queues of 60, made moments before it): `checkpoint` first. A quorum queue as young may not serve.
    """

    name: ClassVar[str] = "RabbitMQ"
    user: ClassVar[str | None] = "rabbitmq"

    def __init__(self) -> None:
        super().__init__()
        self._mapper = PortMapper()
        self._node_port = free_port()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def command(self) -> list[str]:
        if not PROGRAM.exists():
            raise EngineMissing("RabbitMQ is not installed; run: tools/provision servers")
        return ["env", *(f"{name}={value}" for name, value in self._settings().items()), str(PROGRAM)]

    def start(self) -> None:
        self.command()  # raises EngineMissing before the port mapper runs
        self._mapper.start()
        super().start()

    def close(self) -> None:
        super().close()
        self._mapper.close()

    def prepare(self) -> None:
        """Listen on loopback only."""
        lines = [f"listeners.tcp.1 = 127.0.0.1:{self.port}", "distribution.listener.interface = 127.0.0.1"]
        (self.folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (self.folder / "plugins").write_text("[].\n")

    def answers(self) -> bool:
        """A broker that is ready opens the AMQP handshake."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.settimeout(2)
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            return connection.recv(1) == b"\x01"
        return False

    def checkpoint(self) -> None:
        """Write what was declared so far into the tables on disk, where a kill cannot reach it."""
        command = [str(CONTROL), "--node", self._settings()["RABBITMQ_NODENAME"], "eval", "mnesia:dump_log()."]
        done = subprocess.run(
            command,
            env=self._settings(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            **as_user(self.user),
        )
        if done.stdout.strip() != "dumped":
            raise ServerFailed(self._story(f"wrote no checkpoint: {done.stdout}{done.stderr}"))

    def _settings(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(self.folder),
            "RABBITMQ_ALLOW_INPUT": "yes",  # makes the script become the broker, instead of waiting for it ...
            "RABBITMQ_SERVER_START_ARGS": "-noinput",  # ... which needs no input all the same
            "ERL_EPMD_PORT": str(self._mapper.port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"oncekey{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
        }
