"""What is shipped and what is pinned."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def name_of(requirement: str) -> str:
    """Return the package's name, without version, extras and markers."""
    return re.split(r"[\[<>=;! ]", requirement.strip(), maxsplit=1)[0].lower()


def declared() -> set[str]:
    """Return every package that we chose ourselves: base, extras and requirements/*.in."""
    chosen = [*PROJECT["dependencies"], *(one for extra in EXTRAS.values() for one in extra)]
    for file in (ROOT / "requirements").glob("*.in"):
        chosen += [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return {name_of(one) for one in chosen} - {"oncekey"}


def test_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    """SQL, Lua, pages, styles, scripts and py.typed are in the wheel, not only the Python files."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / "oncekey").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert expected - set(zipfile.ZipFile(wheel).namelist()) == set()
    assert "oncekey/py.typed" in expected


def test_all_means_every_extra() -> None:
    """oncekey[all] brings every other extra."""
    named = [name for line in EXTRAS["all"] for name in line.removeprefix("oncekey[").removesuffix("]").split(",")]
    assert sorted(named) == sorted(set(EXTRAS) - {"all"})


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_lock_names_hashes_and_no_place(lock: Path) -> None:
    """Every pinned package has a hash, and no line says from where to download."""
    text = lock.read_text()
    pinned = re.findall(r"^[a-zA-Z0-9].*?==[^\n]*\n((?:    --hash=\S+(?: \\)?\n)*)", text, re.MULTILINE)
    assert pinned
    assert all(pinned)
    assert "://" not in text
    assert not re.search(r"^--", text, re.MULTILINE)


def test_each_dependency_has_its_reason() -> None:
    """docs/dependencies.md has one row for each package that we chose, and for no other."""
    rows = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs" / "dependencies.md").read_text(), re.MULTILINE)
    assert sorted(row.lower() for row in rows) == sorted(declared())
