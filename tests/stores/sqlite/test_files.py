"""Addresses and files that do not work: each is answered with what to do."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from oncekey.core.commands import Won
from oncekey.errors import ConfigurationError, StoreError, StoreUnavailable
from oncekey.stores.open import open_store
from oncekey.stores.planned import PlannedStore
from oncekey.stores.sqlite import open_sync, path_of
from tests.stores.sqlite.children import in_child
from tests.stores.sqlite.items import claim


def test_relative_and_absolute_addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Three slashes start in the working folder of that moment, four at the root; %20 is a space."""
    monkeypatch.chdir(tmp_path)
    assert path_of("sqlite:///a%20b.db") == str(tmp_path / "a b.db")
    assert path_of("sqlite:////var/lib/oncekey.db") == "/var/lib/oncekey.db"


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("sqlite://", "memory://"),
        ("sqlite:///", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite://:memory:", "memory://"),
        ("sqlite://oncekey.db", "sqlite:///oncekey.db"),
        ("sqlite:///oncekey.db?mode=ro", "no options"),
        ("sqlite:///a%00b", "NUL"),
    ],
)
def test_bad_address_says_what_to_write(url: str, fix: str) -> None:
    """An address that names no file is refused before anything is opened."""
    with pytest.raises(ConfigurationError, match=fix):
        open_sync(url, store_for=1.0)


def test_missing_folder(tmp_path: Path) -> None:
    """A folder that is not there is not made, but named."""
    with pytest.raises(ConfigurationError, match=f"mkdir -p {tmp_path}/no") as refused:
        open_store(f"sqlite:///{tmp_path}/no/oncekey.db").get(b"k")
    assert refused.value.__cause__ is not None


def test_folder_instead_of_a_file(tmp_path: Path) -> None:
    """A folder is not a database."""
    with pytest.raises(ConfigurationError, match="it is a folder"):
        open_store(f"sqlite:///{tmp_path}").get(b"k")


def test_not_a_database(path: Path) -> None:
    """Another program's file is left as it is."""
    path.write_bytes(b"important notes" * 100)
    with pytest.raises(ConfigurationError, match="not an SQLite database"):
        open_store(f"sqlite:///{path}").claim([claim("a")])
    assert path.read_bytes() == b"important notes" * 100


def test_read_only_file(store: PlannedStore, path: Path, tmp_path: Path) -> None:
    """A file that may only be read refuses new requests, and says which permission is missing."""
    store.migrate()
    store.close()

    def attempt() -> str:
        path.chmod(0o444)
        tmp_path.chmod(0o555)
        if os.geteuid() == 0:
            for folder in tmp_path.parents:
                if folder.stat().st_uid == 0 and folder != Path("/"):
                    folder.chmod(folder.stat().st_mode | 0o055)
            os.setuid(65534)
        try:
            open_store(f"sqlite:///{path}").claim([claim("a")])
        except (StoreUnavailable, ConfigurationError) as refused:
            return str(refused)
        return "claimed"

    said = in_child(attempt)
    tmp_path.chmod(0o755)
    assert "permission" in said


def test_full_disk_refuses_and_recovers(store: PlannedStore) -> None:
    """When nothing more can be written a claim is refused and leaves nothing; with room again it succeeds."""
    store.migrate()

    def attempt() -> str:
        many = [claim(f"key {number}")._replace(fingerprint=b"f" * 500) for number in range(2000)]
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
        try:
            store.claim(many)
        except StoreUnavailable as refused:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            left = store.stats().get("in_progress", 0)
            again = store.claim([claim("key 1")])
            return f"{refused} left={left} again={isinstance(again[0], Won)}"
        return "claimed"

    said = in_child(attempt)
    assert "disk" in said
    assert "left=0 again=True" in said


def test_deleted_file_is_noticed(store: PlannedStore, path: Path) -> None:
    """A file deleted under a running process takes no further claims: nobody else would ever see them."""
    store.claim([claim("a")])
    path.unlink()
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        store.claim([claim("b")])


def test_file_that_came_back_is_used(store: PlannedStore, path: Path) -> None:
    """After the refusal the file that now lies there is opened, whatever is in it."""
    store.claim([claim("a")])
    path.unlink()
    with pytest.raises(StoreUnavailable, match="deleted or replaced"):
        store.get(b"k")
    assert store.claim([claim("b")]) == [Won(30_000)]


def test_closed_store(store: PlannedStore) -> None:
    """A closed store says so."""
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.get(b"k")


@pytest.mark.parametrize(
    "wrong", [lambda c: c._replace(id=b""), lambda c: c._replace(fingerprint=None), lambda c: c._replace(token=3j)]
)
def test_misfit_fails_alone(store: PlannedStore, wrong: Callable[..., object]) -> None:
    """A record that the table refuses is no outage, and asked again without it its neighbours are served."""
    with pytest.raises(StoreError, match="does not fit") as refused:
        store.claim([claim("a"), wrong(claim("b"))])  # type: ignore[list-item]
    assert not isinstance(refused.value, StoreUnavailable)
    assert store.claim([claim("a")]) == [Won(30_000)]
