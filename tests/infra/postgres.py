"""PostgreSQL: a cluster of its own, with fsync on, because tests kill it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import psycopg

from tests.infra.process import EngineMissing, Server, as_user

OLDEST_MAJOR = 15


class PostgresServer(Server):
    """A cluster with user and database `oncekey`, no password. Options are lines of postgresql.conf."""

    name: ClassVar[str] = "PostgreSQL"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # fast: does not wait for clients to leave
    orphan_signal: ClassVar[signal.Signals] = signal.SIGQUIT  # at once, but its shared memory is given back
    user: ClassVar[str | None] = "postgres"

    def __init__(self, **options: str) -> None:
        super().__init__()
        self.options = {"listen_addresses": "127.0.0.1", "max_connections": "200"} | options

    @property
    def url(self) -> str:
        return self.database_url("oncekey")

    def database_url(self, database: str) -> str:
        """Return where clients reach this database."""
        return f"postgresql://oncekey@127.0.0.1:{self.port}/{database}"

    @contextlib.contextmanager
    def new_database(self, name: str) -> Iterator[str]:
        """Make an empty database, give its URL, and drop it together with whoever is still connected."""
        self.execute(f'CREATE DATABASE "{name}"')
        try:
            yield self.database_url(name)
        finally:
            if self.running:
                self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def execute(self, statement: str) -> None:
        """Run one statement outside of a transaction."""
        with psycopg.connect(self.url, autocommit=True, connect_timeout=5) as connection:
            connection.execute(statement.encode())

    def command(self) -> list[str]:
        options = {"port": str(self.port), "unix_socket_directories": ""} | self.options
        settings = [word for key, value in options.items() for word in ("-c", f"{key}={value}")]
        return [str(programs() / "postgres"), "-D", str(self.folder / "data"), *settings]

    def prepare(self) -> None:
        """Make the cluster. The disk need not have it before we go on: only what clients commit must last."""
        initdb = [str(programs() / "initdb"), "--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        self._run([*initdb, "--username=oncekey", "-D", str(self.folder / "data")])
        self._run(
            [str(programs() / "postgres"), "--single", "-D", str(self.folder / "data"), "postgres"],
            words=b"CREATE DATABASE oncekey\n",
        )

    def answers(self) -> bool:
        try:
            with psycopg.connect(self.url, connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False

    def after_end(self) -> None:
        """Give back the segment that a killed server leaves: its id is in the lock file that stayed, too."""
        with contextlib.suppress(OSError, IndexError):
            segment = (self.folder / "data" / "postmaster.pid").read_text().splitlines()[6].split()[1]
            subprocess.run(["ipcrm", "-m", segment], check=False, capture_output=True)

    def _run(self, command: list[str], words: bytes = b"") -> None:
        done = subprocess.run(
            command,
            input=words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            cwd=self.folder,
            timeout=60,
            **as_user(self.user),
        )
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, command, done.stdout.decode(errors="replace"))


def programs() -> Path:
    """Return the folder of the newest installed server."""
    majors = {
        int(path.parent.parent.name): path.parent for path in Path("/usr/lib/postgresql").glob("[0-9]*/bin/initdb")
    }
    if majors and max(majors) >= OLDEST_MAJOR:
        return majors[max(majors)]
    if (found := shutil.which("initdb")) and os.access(Path(found).resolve().parent / "postgres", os.X_OK):
        return Path(found).resolve().parent
    raise EngineMissing(f"PostgreSQL {OLDEST_MAJOR} or later is not installed; run: tools/provision servers")
