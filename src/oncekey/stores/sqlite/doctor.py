"""What the start-up check makes of a database file and its surroundings. Pure."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from oncekey.stores.contract import Finding
from oncekey.stores.sqlite.steps import Place

# STRICT tables.
MINIMUM = (3, 37, 0)
# PRAGMA synchronous: 2 is FULL, 3 is EXTRA.
FULL = 2
# Below this much free space a burst of answers may fill the disk.
ROOM = 256 << 20
# The log's shared memory does not reach over the network: two machines would both write.
NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
    | {"fuse.ceph", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "vboxsf", "virtiofs"}
)


def sqlite(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> Finding:
    """The library's version."""
    name = ".".join(map(str, version))
    if version < MINIMUM:
        least = ".".join(map(str, MINIMUM))
        return Finding("refusal", f"SQLite {name} is too old", f"use a Python whose SQLite is {least} or later")
    return Finding("ok", f"SQLite {name}")


def schema(version: int, newest: int) -> Finding:
    """The tables' version."""
    if version == newest:
        return Finding("ok", f"schema {version}")
    if version == 0:
        return Finding("ok", "the tables are not there yet; they are made at the first use")
    if version < newest:
        return Finding("refusal", f"schema {version} is older than {newest}", "run `oncekey migrate`")
    return Finding("refusal", f"schema {version} is newer than {newest}", "install the OnceKey that made it")


def journal(mode: str) -> Finding:
    """The journal mode."""
    if mode == "wal":
        return Finding("ok", "journal mode WAL")
    fix = "put the file on a local disk, and let no other program change its journal mode"
    return Finding("warning", f"journal mode {mode}: readers and writers wait for each other", fix)


def durability(synchronous: int) -> Finding:
    """Whether a commit survives power loss."""
    if synchronous >= FULL:
        return Finding("ok", "synchronous FULL: an acknowledged claim survives power loss")
    return Finding(
        "refusal", "synchronous is below FULL: power loss forgets claims", "remove what sets PRAGMA synchronous"
    )


def file_system(place: Place) -> Finding:
    """Whether the file lies on a network file system."""
    if place.filesystem in NETWORK:
        what = (
            f"{place.path} lies on {place.filesystem}, a network file system: locks between machines do not hold there"
        )
        return Finding("warning", what, "use a local disk, or a server such as postgresql://")
    return Finding("ok", f"file system {place.filesystem or 'not known'}")


def disk(place: Place) -> Finding:
    """Whether there is room to write."""
    free = f"{place.free >> 20} MiB free"
    if place.free < ROOM:
        return Finding("warning", f"{free}: a full disk refuses every new request", "make room, or purge more often")
    return Finding("ok", free)


def unreadable(count: int) -> Iterator[Finding]:
    """Records of a format that this code does not know, if there are any."""
    if count:
        what = f"{count} records were written by a newer OnceKey: their keys are refused here"
        yield Finding("warning", what, "finish the upgrade")
