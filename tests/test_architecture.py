"""The house keeps its shape: sizes, arrows between rooms, and where foreign packages may come in.

The rules are tables in tests/architecture/rules.py. Each check is fed a bad tree here, so that it is known to bite.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.architecture import checks, rules

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "oncekey"
TREES = [SOURCE, ROOT / "tests", ROOT / "bench"]
Check = Callable[[Path], list[str]]

# Measure -> (its limit, where it holds).
MEASURES: dict[Callable[[Path], dict[str, int]], tuple[int, list[Path]]] = {
    checks.function_sizes: (rules.FUNCTION_LINES, TREES),
    checks.parameter_counts: (rules.PARAMETERS, TREES),
    checks.file_sizes: (rules.FILE_LINES, TREES),
    checks.adapter_sizes: (rules.ADAPTER_LINES, [SOURCE]),
}


def write(root: Path, files: dict[str, str]) -> Path:
    """Make a small source tree."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


# ---- sizes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", MEASURES)
def test_sizes_stay_small(measure: Callable[[Path], dict[str, int]]) -> None:
    """Functions, parameter lists, files and adapters stay within their limits, or what the allow-list grants."""
    limit, trees = MEASURES[measure]
    for tree in trees:
        assert checks.over_limit(measure(tree), limit, rules.ALLOWED) == []


def test_allow_list_only_shrinks() -> None:
    """An entry of the allow-list that nothing needs any more, or that grants too much, is removed."""
    everything: set[str] = set()
    for measure, (limit, trees) in MEASURES.items():
        for tree in trees:
            measured = measure(tree)
            everything |= set(measured)
            assert checks.stale_allowances(measured, limit, rules.ALLOWED) == []
    assert checks.lost_allowances(everything, rules.ALLOWED) == []


def test_long_function_is_found(tmp_path: Path) -> None:
    """Lines are counted from the first statement after the docstring, in methods and inner functions too."""
    body = "".join(f"        x = {n}\n" for n in range(41))
    root = write(
        tmp_path, {"core/a.py": f'class A:\n    def long(self):\n        """Doc.\n\n        More.\n        """\n{body}'}
    )
    measured = checks.function_sizes(root)
    assert measured == {"lines core/a.py:A.long": 41}
    assert checks.over_limit(measured, 40, {}) == ["lines core/a.py:A.long: 41 is over 40"]
    assert checks.over_limit(measured, 41, {}) == []


def test_long_file_is_found(tmp_path: Path) -> None:
    """Every line of a file counts."""
    root = write(tmp_path, {"core/a.py": "#\n" * 401})
    assert checks.over_limit(checks.file_sizes(root), 400, {}) == ["lines core/a.py: 401 is over 400"]


def test_long_adapter_is_found(tmp_path: Path) -> None:
    """A file of adapters/ has the smaller limit, other files have not."""
    root = write(tmp_path, {"adapters/asgi.py": "#\n" * 151, "http/a.py": "#\n" * 151})
    assert checks.adapter_sizes(root) == {"adapter lines adapters/asgi.py": 151}


def test_many_parameters_are_found(tmp_path: Path) -> None:
    """All kinds of parameters count, self and cls do not."""
    root = write(tmp_path, {"a.py": "class A:\n    def f(self, a, /, b, *c, d, e, **f): pass\nasync def g(a): pass\n"})
    assert checks.parameter_counts(root) == {"parameters a.py:A.f": 6, "parameters a.py:g": 1}


def test_allow_list_is_held_to_its_word() -> None:
    """An allowance may not be outgrown, must follow what shrinks, and goes when its reason goes."""
    allowed = {"f": 50, "g": 50, "h": 50, "gone": 50}
    measured = {"f": 51, "g": 45, "h": 40}
    assert checks.over_limit(measured, 40, allowed) == ["f: 51 is over 50"]
    assert checks.stale_allowances(measured, 40, allowed) == [
        "g: has shrunk, write 45 in ALLOWED",
        "h: no longer needed, remove it from ALLOWED",
    ]
    assert checks.lost_allowances(measured, allowed) == ["gone: is gone, remove it from ALLOWED"]


# ---- arrows and imports ------------------------------------------------------------------------------------------

# Check -> a tree that breaks it, and what must be found there.
BAD_TREES: list[tuple[Check, dict[str, str], list[str]]] = [
    (
        checks.upward_arrows,
        {"core/a.py": "from oncekey.stores.memory import open_sync\n"},
        ["core/a.py:1 imports oncekey.stores.memory: core may not import stores (see FLOORS in rules.py)"],
    ),
    (
        checks.upward_arrows,
        {"stores/redis/wire.py": "def f():\n    from ...http import problems\n"},
        ["stores/redis/wire.py:2 imports oncekey.http: stores may not import http (see FLOORS in rules.py)"],
    ),
    (
        checks.upward_arrows,
        {"stores/a.py": "import importlib\nimportlib.import_module('oncekey.engine.front')\n"},
        ["stores/a.py:2 imports oncekey.engine.front: stores may not import engine (see FLOORS in rules.py)"],
    ),
    (
        checks.upward_arrows,
        {"engine/a.py": "from oncekey import OnceKey, stores\n", "stores/b.py": ""},
        ["engine/a.py:1 imports oncekey: engine may not import __init__ (see FLOORS in rules.py)"],
    ),
    (
        checks.upward_arrows,
        {"http/a.py": "import oncekey.testing.clock\n", "testing/b.py": "import oncekey.demo.app, oncekey.engine\n"},
        [
            "http/a.py:1 imports oncekey.testing.clock: http may not import testing (see FLOORS in rules.py)",
            "testing/b.py:1 imports oncekey.demo.app: testing may not import demo (see FLOORS in rules.py)",
        ],
    ),
    (
        checks.knots,
        {"engine/a.py": "import oncekey.http.answer\n", "http/answer.py": "from oncekey.engine import a\n"},
        ["engine and http import each other"],
    ),
    (checks.homeless_rooms, {"cellar/a.py": "", "errors.py": ""}, ["cellar: give this room a place in FLOORS"]),
    (
        checks.strangers,
        {"core/a.py": "import orjson\n", "core/jcs.py": "import orjson\n"},
        ["core/a.py:1 imports orjson: orjson may be imported in ('core/jcs.py',) only"],
    ),
    (
        checks.strangers,
        {"engine/a.py": "from psycopg.rows import dict_row\n", "stores/postgres/wire.py": "import psycopg\n"},
        ["engine/a.py:1 imports psycopg.rows: psycopg may be imported in ('stores/postgres', 'effects/') only"],
    ),
    (
        checks.strangers,
        {"http/a.py": "try:\n    import pandas\nexcept ImportError: ...\n"},
        ["http/a.py:2 imports pandas: pandas may be imported in no room only"],
    ),
    (
        checks.restricted,
        {"engine/a.py": "import random\n", "client/b.py": "import random\n", "demo/c.py": "from pickle import loads\n"},
        ["demo/c.py:1 imports pickle", "engine/a.py:1 imports random"],
    ),
    (
        checks.acting_core,
        {"core/a.py": "from time import time\n", "engine/b.py": "import time\n"},
        ["core/a.py:1 imports time"],
    ),
]


@pytest.mark.parametrize("check", dict.fromkeys(check for check, _, _ in BAD_TREES))
def test_imports_keep_to_the_rules(check: Check) -> None:
    """Arrows point down without knots, and foreign or restricted modules stay in their rooms."""
    assert check(SOURCE) == []


@pytest.mark.parametrize(("check", "tree", "expected"), BAD_TREES)
def test_bad_import_is_found(check: Check, tree: dict[str, str], expected: list[str], tmp_path: Path) -> None:
    """Each check finds what it forbids, and only that."""
    assert check(write(tmp_path, tree)) == expected


# ---- the front ---------------------------------------------------------------------------------------------------


def test_public_names_are_what_all_says() -> None:
    """`__all__` of oncekey is sorted and equal to what the package exposes."""
    assert checks.public_names(importlib.import_module("oncekey")) == []


def test_wrong_public_names_are_found() -> None:
    """Missing, extra and unsorted names are each found."""
    module = ModuleType("front")
    module.__dict__.update(__all__=["b", "B", "lost"], B=1, b=2, extra=3, _private=4)
    assert checks.public_names(module) == [
        "lost is in __all__ and not there",
        "extra is exposed and not in __all__",
        "__all__ is empty, unsorted, or names something twice; write ['B', 'b', 'lost']",
    ]


def test_bare_import_loads_no_extra() -> None:
    """`import oncekey` loads the standard library, itself and the base dependency, nothing more."""
    assert checks.newly_imported("import oncekey") - rules.BARE == set()


def test_loaded_extra_is_found() -> None:
    """A third-party module that an import loads is seen."""
    assert "redis" in checks.newly_imported("import redis")


def test_every_test_states_its_rule() -> None:
    """Each test has a docstring that says which rule it holds."""
    assert checks.silent_tests(Path(__file__).parent) == []


def test_a_test_without_a_rule_is_found(tmp_path: Path) -> None:
    """The check above can fail."""
    (tmp_path / "test_it.py").write_text("def test_it(): ...\nasync def test_me():\n    'says'\n")
    assert checks.silent_tests(tmp_path) == ["test_it.py:1 test_it"]
