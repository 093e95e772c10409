"""Fuzzes what reads bytes that others wrote, a while for each target, guided by coverage (atheris).

make fuzz                                              a minute for each target
make fuzz FUZZ_ARGS="--seconds 600 --target replayed"  ten minutes for one; --target may repeat
make fuzz FUZZ_ARGS="--list"                           their names

Where atheris does not install, the same targets get the same seeds changed by chance, without its guidance. What is
found is kept in tests/fuzz/corpus/TARGET, where `make test` tries it again for ever.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import inspect
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from tests.fuzz.mutating import mutants
from tests.fuzz.properties import PROPERTIES
from tests.fuzz.seeds import CORPUS, seeds
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parents[2]
NAMES = (*TARGETS, *PROPERTIES)
# A target that needs this long for one input has found something too.
SLOW = 10
MEMORY_MB = 2048


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--target", choices=NAMES, action="append", help="one target instead of all; may repeat")
    parser.add_argument("--seed", type=int, default=0, help="for a run that is to be the same again (0: a new one)")
    parser.add_argument("--list", action="store_true", help="the targets, and the rule that each holds")
    options = parser.parse_args(words)
    if options.seconds < 1:
        parser.error(f"--seconds {options.seconds}: write 1 or more")
    return options


def guided(name: str, options: argparse.Namespace, folder: Path) -> bool:
    """Run a target under atheris, in a process of its own; whether all was well."""
    begin = folder / "seeds"
    begin.mkdir()
    for number, data in enumerate(seeds(name) if name in TARGETS else ()):
        (begin / str(number)).write_bytes(data)
    words = [sys.executable, "-m", "tests.fuzz.child", name, str(begin), f"-max_total_time={options.seconds}"]
    words += [f"-timeout={SLOW}", f"-rss_limit_mb={MEMORY_MB}", f"-artifact_prefix={folder}/found-"]
    words += [f"-seed={options.seed}"] if options.seed else []
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    for found in folder.glob("found-*"):
        keep(name, found.read_bytes())
    if done.returncode:
        print(done.stdout[-3000:], done.stderr[-6000:], sep="\n", file=sys.stderr)  # noqa: T201 - asked for
    return done.returncode == 0


def by_chance(name: str, options: argparse.Namespace) -> bool:
    """The same without guidance. A property makes its own examples, and its test in tests/fuzz runs more of them."""
    if name not in TARGETS:
        return True
    ends = time.monotonic() + options.seconds
    for data in mutants(seeds(name), None, options.seed or time.time_ns()):
        try:
            TARGETS[name](data)
        except Exception:
            keep(name, data)
            raise
        if time.monotonic() > ends:
            break
    return True


def keep(name: str, data: bytes) -> None:
    """Put a finding where `make test` looks."""
    if name in TARGETS:
        folder = CORPUS / name
        folder.mkdir(exist_ok=True)
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


def main(words: list[str]) -> int:
    options, console = parse(words), Console()
    if options.list:
        for name, target in (TARGETS | PROPERTIES).items():
            console.print(
                f"{name:20} {(inspect.getdoc(target) or '').splitlines()[0]}", highlight=False, soft_wrap=True
            )
        return 0
    if guides := importlib.util.find_spec("atheris") is not None:
        how = "guided by coverage"
    else:
        how = "by chance: atheris is not installed for this Python"
    console.print(f"fuzzing {how}, {options.seconds} s for each target")
    failed = []
    for name in options.target or NAMES:
        with tempfile.TemporaryDirectory(prefix="oncekey-fuzz-") as folder:
            well = guided(name, options, Path(folder)) if guides else by_chance(name, options)
        console.print(f"{name:20} {'[green]nothing found' if well else '[red]found something: see above'}")
        failed += [] if well else [name]
    if failed:
        console.print(f"[red]{', '.join(failed)}: the inputs are in tests/fuzz/corpus; mend the code, and commit them")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
