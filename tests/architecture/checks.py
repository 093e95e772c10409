"""Checks over a source tree. Each returns what it found wrong, as sentences; an empty list is good."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tests.architecture import rules

PACKAGE = "oncekey"
Function = ast.FunctionDef | ast.AsyncFunctionDef

# ---- sizes -------------------------------------------------------------------------------------------------------


def function_sizes(root: Path) -> dict[str, int]:
    """Return the lines of each function, without signature and docstring."""
    return {f"lines {where}": body_lines(function) for where, function in functions(root)}


def parameter_counts(root: Path) -> dict[str, int]:
    """Return how many parameters each function has, without self and cls."""
    return {f"parameters {where}": parameters(function) for where, function in functions(root)}


def file_sizes(root: Path) -> dict[str, int]:
    """Return the lines of each file."""
    return {f"lines {path.relative_to(root)}": len(path.read_text().splitlines()) for path in files(root)}


def adapter_sizes(root: Path) -> dict[str, int]:
    """Return the lines of each adapter's file."""
    return {f"adapter {what}": size for what, size in file_sizes(root).items() if what.startswith("lines adapters/")}


def over_limit(measured: Mapping[str, int], limit: int, allowed: Mapping[str, int]) -> list[str]:
    """Find what is over the limit, or over what the allow-list grants it."""
    return [
        f"{what}: {size} is over {allowed.get(what, limit)}"
        for what, size in measured.items()
        if size > allowed.get(what, limit)
    ]


def stale_allowances(measured: Mapping[str, int], limit: int, allowed: Mapping[str, int]) -> list[str]:
    """Find entries of the allow-list that are needless, or larger than what they excuse."""
    found = []
    for what, granted in allowed.items():
        now = measured.get(what)
        if now is not None and now <= limit:
            found.append(f"{what}: no longer needed, remove it from ALLOWED")
        elif now is not None and now < granted:
            found.append(f"{what}: has shrunk, write {now} in ALLOWED")
    return found


def lost_allowances(measured: Iterable[str], allowed: Iterable[str]) -> list[str]:
    """Find entries of the allow-list for what is not there any more."""
    return [f"{what}: is gone, remove it from ALLOWED" for what in sorted(set(allowed) - set(measured))]


def body_lines(function: Function) -> int:
    """Count from the first statement after the docstring to the last line."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    return (body[-1].end_lineno or body[-1].lineno) - body[0].lineno + 1 if body else 0


def parameters(function: Function) -> int:
    """Count all kinds of parameters; *args and **kwargs are one each."""
    given = function.args
    named = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in named if name not in {"self", "cls"}]) + bool(given.vararg) + bool(given.kwarg)


# ---- arrows ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Import:
    """One import: the file it stands in, its line, and the module in full."""

    path: str
    line: int
    module: str

    @property
    def top(self) -> str:
        """The first part of the module's name."""
        return self.module.split(".")[0]

    @property
    def source(self) -> str:
        """The room that imports."""
        return self.path.split("/")[0].removesuffix(".py")

    @property
    def target(self) -> str:
        """The room that is imported, if it is one of ours."""
        return [*self.module.split("."), "__init__"][1]

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module}"


def upward_arrows(root: Path) -> list[str]:
    """Find imports of a higher floor, and rooms that have no floor."""
    found = []
    for arrow in arrows(root):
        if arrow.source == rules.TESTING:
            wrong = arrow.target in rules.TESTING_AVOIDS
        elif arrow.target == rules.TESTING:
            wrong = True
        else:
            source, target = floor(arrow.source), floor(arrow.target)
            wrong = source is None or target is None or target > source
        if wrong:
            found.append(f"{arrow}: {arrow.source} may not import {arrow.target} (see FLOORS in rules.py)")
    return found


def knots(root: Path) -> list[str]:
    """Find pairs of rooms that import each other."""
    pairs = {(arrow.source, arrow.target) for arrow in arrows(root)}
    return [
        f"{one} and {other} import each other" for one, other in sorted(pairs) if one < other and (other, one) in pairs
    ]


def homeless_rooms(root: Path) -> list[str]:
    """Find rooms that rules.py gives no floor."""
    names = {path.relative_to(root).parts[0].removesuffix(".py") for path in files(root)}
    return [
        f"{name}: give this room a place in FLOORS" for name in sorted(names - {rules.TESTING}) if floor(name) is None
    ]


def arrows(root: Path) -> Iterator[Import]:
    """Yield the imports from one of our rooms to another."""
    for found in imports(root):
        if found.top == PACKAGE and found.source != found.target:
            yield found


def floor(room: str) -> int | None:
    """Return how high a room lies."""
    return next((height for height, rooms in enumerate(rules.FLOORS) if room in rooms), None)


# ---- third-party and forbidden modules ---------------------------------------------------------------------------


def strangers(root: Path) -> list[str]:
    """Find imports of third-party packages outside of their homes."""
    found = []
    for one in imports(root):
        if one.top in rules.STANDARD_LIBRARY or one.top == PACKAGE:
            continue
        homes = rules.CORE_HOMES if one.source == "core" else rules.HOMES
        if not one.path.startswith(homes.get(one.top, ("nowhere",))):
            found.append(f"{one}: {one.top} may be imported in {homes.get(one.top, 'no room')} only")
    return found


def restricted(root: Path) -> list[str]:
    """Find imports of modules that only some places, or none, may use."""
    return [
        str(one)
        for one in imports(root)
        if one.top in rules.RESTRICTED and not (one.path.startswith(rules.RESTRICTED[one.top]))
    ]


def acting_core(root: Path) -> list[str]:
    """Find imports with which core could do I/O, read a clock, wait, or draw lots."""
    return [str(one) for one in imports(root) if one.source == "core" and one.top in rules.FORBIDDEN_IN_CORE]


# ---- the public names --------------------------------------------------------------------------------------------


def public_names(module: ModuleType) -> list[str]:
    """Compare `__all__` with what the module really gives, loaded at once or on first use, and hold its order."""
    listed = list(getattr(module, "__all__", []))
    found = [f"{name} is in __all__ and not there" for name in listed if not hasattr(module, name)]
    hidden = (ModuleType, type(annotations))
    exposed = {name for name, value in vars(module).items() if name[0] != "_" and not isinstance(value, hidden)}
    found += [f"{name} is exposed and not in __all__" for name in sorted(exposed - set(listed))]
    in_order = sorted(set(listed), key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    if not listed or listed != in_order:
        found.append(f"__all__ is empty, unsorted, or names something twice; write {in_order}")
    return found


def newly_imported(statement: str) -> set[str]:
    """Return the top-level modules outside of the standard library that a fresh interpreter loads for a statement."""
    program = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return {name.split(".")[0] for name in run.stdout.split()} - rules.STANDARD_LIBRARY


def silent_tests(root: Path) -> list[str]:
    """Return the tests that do not say in a sentence which rule they hold."""
    return [
        f"{path.relative_to(root)}:{node.lineno} {node.name}"
        for path in files(root)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]


# ---- reading a tree ----------------------------------------------------------------------------------------------


def files(root: Path) -> list[Path]:
    """Return all Python files below a folder."""
    return sorted(root.rglob("*.py"))


def functions(root: Path) -> Iterator[tuple[str, Function]]:
    """Yield "path:Class.function" and the function, inner ones too."""
    for path in files(root):
        for name, node in definitions(ast.parse(path.read_text()), ""):
            yield f"{path.relative_to(root)}:{name}", node


def definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    """Walk a tree, carrying the names of what encloses."""
    for child in ast.iter_child_nodes(node):
        inner = prefix
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{prefix}{child.name}."
            if not isinstance(child, ast.ClassDef):
                yield f"{prefix}{child.name}", child
        yield from definitions(child, inner)


def imports(root: Path) -> Iterator[Import]:
    """Yield every import of every file, those inside functions and for type checkers too."""
    for path in files(root):
        relative = path.relative_to(root)
        package = [PACKAGE, *relative.parts[:-1]]
        for node in ast.walk(ast.parse(path.read_text())):
            for module in imported(node, package, root):
                yield Import(relative.as_posix(), getattr(node, "lineno", 0), module)


def imported(node: ast.AST, package: list[str], root: Path) -> list[str]:
    """Return the modules in full that an import statement, or a call of import_module with a literal, names."""
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom():
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module.split(".") if node.module else [])])
            if module == PACKAGE:  # `from oncekey import core` names a room, `from oncekey import OnceKey` the front
                return [f"{module}.{alias.name}" if is_room(root, alias.name) else module for alias in node.names]
            return [module]
        case ast.Call(args=[ast.Constant(value=str(name)), *_]) if called(node) in {"import_module", "__import__"}:
            return [name]
        case _:
            return []


def called(call: ast.Call) -> str:
    """Return the last part of the called name."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def is_room(root: Path, name: str) -> bool:
    """Whether a name is a folder or file directly in the package."""
    return (root / name).is_dir() or (root / f"{name}.py").is_file()
