r"""A file of records: what `export` writes and `import` reads.

    oncekey records 1\n                    what it is, and the version of this format
    frames, each: length (4 bytes), then so many bytes, the first of which is the kind:
        R   the time at which the record stood so (8 bytes), length of its id (1 byte), id, core.record.encode
        E   how many records (8 bytes), SHA-256 of all bytes before this frame

Numbers are big-endian. The file ends with E: one that was cut short has none. Nothing is taken from a file before all
of it was checked. It has the answers of all callers in it, so only its owner may read it.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from oncekey.core.record import Seen, decode, encode
from oncekey.errors import ConfigurationError, StoreError
from oncekey.operations.cleaning import BATCH
from oncekey.operations.copying import Source, is_running, shielded

NAME, VERSION = b"oncekey records ", 1
HEAD = NAME + b"%d\n" % VERSION
LONGEST_HEAD = 40
LENGTH, TIME, COUNT = struct.Struct(">I"), struct.Struct(">Q"), struct.Struct(">Q")
RECORD, END = b"R", b"E"
# No record is as long: an answer has 64 MiB at most, before it is sealed.
LONGEST = 80 << 20


class Contents(NamedTuple):
    """What a whole file holds: how many records, and their digest in this order."""

    records: int
    digest: str


class Exported(NamedTuple):
    """What was written. `running` had a living lease, so that they may end differently from what is in the file."""

    contents: Contents
    running: int
    stopped: bool = False


def export(
    source: Source,
    path: Path,
    *,
    batch: int = BATCH,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda written: None,
) -> Exported:
    """Write all records to a new file, which is there only when it is whole."""
    if path.exists():
        raise ConfigurationError(f"there is a file {path} already: name another one, or move it away")
    part = path.with_name(f"{path.name}.part")
    file = _opened(part)
    try:
        with file:
            running = _write(_Summed(file), source, batch, stop, progress)
            file.flush()
            os.fsync(file.fileno())
        if stop():
            return Exported(Contents(0, ""), running, stopped=True)
        contents = File(part).check()
        part.rename(path)
        return Exported(contents, running)
    except OSError as wrong:
        raise ConfigurationError(f"the file {path} cannot be written: {wrong.strerror}") from wrong
    finally:
        part.unlink(missing_ok=True)


def _opened(part: Path) -> IO[bytes]:
    try:
        return os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except FileExistsError:
        raise ConfigurationError(
            f"there is a file {part}: another export is writing it, or was killed; remove it if none is"
        ) from None
    except OSError as wrong:
        raise ConfigurationError(f"the file {part} cannot be written: {wrong.strerror}") from wrong


class _Summed:
    """A file, and the digest of what went into it or came out of it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.sum = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Write and remember."""
        self.sum.update(data)
        self.file.write(data)

    def read(self, size: int) -> bytes:
        """Read so much, or say that the file ends too early."""
        data = self.file.read(size)
        if len(data) < size:
            raise _Broken("it was cut short")
        self.sum.update(data)
        return data


class _Broken(Exception):
    """The file is not what was exported; the message says why."""


def _write(out: _Summed, source: Source, batch: int, stop: Callable[[], bool], progress: Callable[[int], None]) -> int:
    out.write(HEAD)
    count = running = 0
    for page in source.pages(batch):
        for seen in page:
            record = shielded(seen)
            running += is_running(record, seen.now)
            _frame(out, RECORD + TIME.pack(seen.now) + bytes((len(record.id),)) + record.id + encode(record))
        count += len(page)
        progress(count)
        if stop():
            break
    _frame(out, END + COUNT.pack(count) + out.sum.digest())
    return running


def _frame(out: _Summed, data: bytes) -> None:
    out.write(LENGTH.pack(len(data)) + data)


class File(NamedTuple):
    """A file of records, as a source."""

    path: Path

    def check(self) -> Contents:
        """Read all of it, to its end; a file that is damaged, cut short or of another version is refused."""
        count, sum_ = 0, ""
        for frame in self._frames():
            if isinstance(frame, Contents):
                count, sum_ = frame
        return Contents(count, sum_)

    def pages(self, limit: int) -> Iterator[list[Seen]]:
        """The records, in the order in which they were written."""
        page: list[Seen] = []
        for frame in self._frames():
            if isinstance(frame, Seen):
                page.append(frame)
            if len(page) == limit or isinstance(frame, Contents):
                yield page
                page = []

    def _frames(self) -> Iterator[Seen | Contents]:
        try:
            with self.path.open("rb") as file:
                yield from _read(_Summed(file))
        except OSError as wrong:
            raise ConfigurationError(f"the file {self.path} cannot be read: {wrong.strerror}") from wrong
        except (_Broken, struct.error, IndexError, StoreError) as wrong:
            raise ConfigurationError(
                f"the file {self.path} cannot be imported: {wrong}; nothing of it was imported"
            ) from wrong


def _read(file: _Summed) -> Iterator[Seen | Contents]:
    _check_head(file)
    count = 0
    while True:
        before = file.sum.digest()
        (size,) = LENGTH.unpack(file.read(LENGTH.size))
        if not 0 < size <= LONGEST:
            raise _Broken(f"behind record {count} a frame claims to have {size} bytes")
        frame = file.read(size)
        if frame[:1] == RECORD:
            yield _record(frame)
            count += 1
        elif frame[:1] == END:
            yield _end(frame, count, before)
            break
        else:
            raise _Broken(
                f"behind record {count} stands a frame of kind {frame[0]:#04x}: was it written by a newer one?"
            )
    if file.file.read(1):
        raise _Broken("something stands behind its end")


def _check_head(file: _Summed) -> None:
    head = file.file.readline(LONGEST_HEAD)
    file.sum.update(head)
    if not head.startswith(NAME):
        raise _Broken("it is no file of records: it was not written by `oncekey export`")
    if head != HEAD:
        version = head[len(NAME) :].strip().decode("ascii", "replace")
        raise _Broken(
            f"it has format version {version!r}, and this code reads {VERSION}: import it with a newer OnceKey"
        )


def _record(frame: bytes) -> Seen:
    (now,) = TIME.unpack_from(frame, 1)
    at = 1 + TIME.size
    start = at + 1 + frame[at]
    return Seen(decode(frame[at + 1 : start], frame[start:]), now)


def _end(frame: bytes, count: int, digest: bytes) -> Contents:
    (said,) = COUNT.unpack_from(frame, 1)
    if said != count:
        raise _Broken(f"it has {count} records, and its end says {said}")
    if frame[1 + COUNT.size :] != digest:
        raise _Broken("its digest is another one: it was changed or damaged")
    return Contents(count, digest.hex())
