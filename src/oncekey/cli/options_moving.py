"""The options of `oncekey erase`, `copy`, `export` and `import`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

Fill = Callable[[argparse.ArgumentParser], None]


def fill(command: Callable[[str, str, Fill], None], named: Fill, signed: Fill) -> None:
    """Make these commands. `named` adds how one operation is named, `signed` who changes something, and why."""

    def erase(made: argparse.ArgumentParser) -> None:
        named(made)
        made.add_argument(
            "--scope", metavar="TEXT", help="instead of an id: all of a caller's; what the scope returned, - reads it"
        )
        made.add_argument("--digest", metavar="HEX", help="the same by the digest that `oncekey show` prints as scope")
        signed(made)

    def copy(made: argparse.ArgumentParser) -> None:
        made.add_argument("--to", metavar="URL", required=True, help="the store that the records shall go to")
        signed(made)

    def export(made: argparse.ArgumentParser) -> None:
        made.add_argument("file", metavar="FILE", help="a new file; it has all answers in it")

    def import_(made: argparse.ArgumentParser) -> None:
        made.add_argument("file", metavar="FILE", help="what `oncekey export` has written")
        signed(made)

    command("erase", "take away the answers of one caller; keys and statuses stay", erase)
    command("copy", "copy all records into another store, and compare", copy)
    command("export", "write all records into a file", export)
    command("import", "bring the records of a file into the store", import_)
