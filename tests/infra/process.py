"""The life of one server process: started, paused, killed, started again, and never left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Self

# Below the range that the kernel takes client ports from: otherwise a client could sit on
# a killed server's port before it is started again. +10000 (a cluster's bus) is free as well.
PORTS = range(12_000, 22_000)
START_WITHIN = 30.0
STOP_WITHIN = 20.0
FOLDER_PREFIX = "oncekey-test-"
# A server ends with the *thread* that started it (see until_we_end), and a test's own thread may be short.
STARTER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="server-starter")


class EngineMissing(Exception):
    """The program is not installed; the message says in one sentence how to get it."""

    def __init__(self, sentence: str, *, obtainable: bool = True) -> None:
        super().__init__(sentence)
        self.obtainable = obtainable


class ServerFailed(Exception):
    """The server ended, or did not answer in time; the end of its log is in the message."""


class Server(ABC):
    """One real server. Subclasses say which program it is and when it is ready."""

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    orphan_signal: ClassVar[signal.Signals] = signal.SIGKILL
    user: ClassVar[str | None] = None  # who runs it when we are root; None: root may

    def __init__(self) -> None:
        self.port = 0
        self.folder = Path()
        self._folder_lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients connect."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the program and its arguments."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether the server serves requests now."""

    def prepare(self) -> None:
        """Make what the first start needs, in `self.folder`."""

    def after_end(self) -> None:
        """Remove what a killed server leaves in the kernel."""

    # ---- life ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id; it is an error to ask while the server is down."""
        if self._process is None:
            raise ServerFailed(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists, paused or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start, and return once it answers. On the port and data of the last time, if there was one."""
        if self.running:
            return
        self.command()  # raises EngineMissing before a folder is made
        if not self.port:
            self.port = free_port()
            self.folder, self._folder_lock = own_folder(self.user)
            self.prepare()
        deadline = time.monotonic() + START_WITHIN
        self._process = self._spawn()
        while not self.answers():
            if self._process.poll() is not None and not self._may_try_again(deadline):
                raise ServerFailed(self._story(f"ended with code {self._process.returncode} at its start"))
            if time.monotonic() > deadline:
                raise ServerFailed(self._story(f"did not answer within {START_WITHIN:.0f} s"))
            time.sleep(0.01)

    def stop(self) -> None:
        """End it the polite way; the data stays for the next start."""
        if self._process is None:
            return
        self.resume()
        self._process.send_signal(self.stop_signal)
        try:
            self._process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """SIGKILL to all its processes at once, as a crash of the machine would; return when the main one is gone."""
        if self._process is None:
            return
        for pid in self._family():
            send(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze all its processes: connections stay open, nothing answers."""
        for pid in self._family():  # the parent first: it could start others meanwhile
            send(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let frozen processes run on."""
        for pid in reversed(self._family()):
            send(pid, signal.SIGCONT)

    def close(self) -> None:
        """Stop and delete the data."""
        self.stop()
        if self._folder_lock is not None:
            self.after_end()
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._folder_lock)
            self._folder_lock = None
            self.port = 0

    # ---- inside --------------------------------------------------------------------------------------------------

    def _spawn(self) -> subprocess.Popen[bytes]:
        return STARTER.submit(self._popen).result()

    def _popen(self) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*until_we_end(self.orphan_signal), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C in the terminal is for the tests, not for the server
                **as_user(self.user),
            )

    def _may_try_again(self, deadline: float) -> bool:
        """Start once more if what a killed predecessor left is likely the reason."""
        time.sleep(0.1)
        if time.monotonic() > deadline or "in use" not in self._log_end():
            return False
        self._process = self._spawn()
        return True

    def _family(self) -> list[int]:
        return [self.pid, *descendants(self.pid)] if self.running else []

    def _log_end(self) -> str:
        with contextlib.suppress(OSError):
            return "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-15:])
        return ""

    def _story(self, what: str) -> str:
        return f"{self.name} on port {self.port} {what}.\n{self._log_end()}"


# ---- the operating system ----------------------------------------------------------------------------------------


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerFailed(f"no free port in {PORTS}")


def as_user(user: str | None) -> dict[str, Any]:
    """Return what makes subprocess drop from root to that user; nothing when we are not root."""
    if user is None or os.geteuid() != 0:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def until_we_end(orphan_signal: signal.Signals) -> list[str]:
    """Return the words before a command that make the kernel send it this signal when its parent dies.

    setpriv (util-linux) keeps the process id, so the server stays our direct child.
    """
    return ["setpriv", f"--pdeathsig={orphan_signal.name}", "--"] if shutil.which("setpriv") else []


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may be gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def descendants(pid: int) -> list[int]:
    """Return all processes below this one, parents before children."""
    children: dict[int, list[int]] = {}
    for child, parent in parents():
        children.setdefault(parent, []).append(child)
    found = list(children.get(pid, []))
    for child in found:  # grows while we walk it
        found.extend(children.get(child, []))
    return found


def parents() -> Iterator[tuple[int, int]]:
    """Yield (process, its parent) for all processes."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            after_name = stat.read_text(errors="replace").rpartition(")")[2].split()
            yield int(stat.parent.name), int(after_name[1])


# ---- folders -----------------------------------------------------------------------------------------------------


def own_folder(user: str | None) -> tuple[Path, int]:
    """Make a folder for this server, and return it with a lock that says that we are alive."""
    sweep_folders()
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if user is not None and os.geteuid() == 0:
        shutil.chown(folder, user)
    return folder, lock


def sweep_folders() -> None:
    """Delete the folders of test runs that were killed: nobody holds their locks."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime < 60:  # perhaps made just now and not locked yet
                continue
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
