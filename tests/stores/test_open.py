from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncekey import AsyncEngine, ConfigurationError
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore
from oncekey.stores.open import ROOMS, open_async_store, open_store, register_store

OURS = """
from oncekey.stores.memory import AsyncMemoryStore, MemoryStore

def open_sync(url, *, store_for):
    return MemoryStore()

def open_async(url, *, store_for):
    return AsyncMemoryStore(MemoryStore())
"""


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    rooms = dict(ROOMS)
    yield
    ROOMS.clear()
    ROOMS.update(rooms)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "acme_store.py").write_text(OURS)
    (tmp_path / "acme_half.py").write_text("def open_sync(url, *, store_for): ...")
    monkeypatch.syspath_prepend(tmp_path)
    return "acme_store"


async def test_a_registered_store_is_opened_by_its_scheme(module: str) -> None:
    """In both colours, and by an engine, whose keeper opens it a second time."""
    register_store("acme", module)
    register_store("acme", module)
    assert isinstance(open_store("acme://x"), MemoryStore)
    assert isinstance(open_async_store("ACME://x"), AsyncMemoryStore)
    await AsyncEngine("acme://x").close()


@pytest.mark.parametrize(
    ("scheme", "module_name", "sentence"),
    [
        ("redis", "acme_store", "redis:// is the store of oncekey.stores.redis: choose another scheme"),
        ("Acme", "acme_store", "write small letters, such as 'journal'"),
        ("a/b", "acme_store", "write small letters"),
    ],
)
def test_what_cannot_be_registered_is_refused(scheme: str, module_name: str, sentence: str) -> None:
    """Nobody takes the place of another store, and a scheme must be one."""
    with pytest.raises(ConfigurationError, match=sentence):
        register_store(scheme, module_name)


def test_a_module_without_its_openers_is_refused_with_what_to_write(module: str) -> None:
    """At the first use, in a sentence."""
    register_store("half", "acme_half")
    with pytest.raises(ConfigurationError, match="acme_half has no open_async: write both"):
        open_store("half://")


def test_an_installed_package_announces_its_store(module: str, tmp_path: Path) -> None:
    """By an entry point; the command line finds it, and other unknown schemes are still told apart."""
    announced = tmp_path / "acme_store-1.0.dist-info"
    announced.mkdir()
    (announced / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-store\nVersion: 1.0\n")
    (announced / "entry_points.txt").write_text("[oncekey.stores]\nacme = acme_store\n")
    assert isinstance(open_store("acme://"), MemoryStore)
    with pytest.raises(ConfigurationError, match="did you mean acme"):
        open_store("acne://")
    asked = [sys.executable, "-m", "oncekey", "stats", "--json", "--store", "acme://"]
    told = subprocess.run(asked, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")
