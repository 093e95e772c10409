"""One target under atheris, in a process of its own: libFuzzer ends the process that it runs in."""

from __future__ import annotations

import logging
import sys

import atheris


def main() -> None:
    with atheris.instrument_imports(include=["oncekey"]):
        from tests.fuzz.properties import PROPERTIES
        from tests.fuzz.targets import TARGETS
    logging.disable(logging.CRITICAL)
    name = sys.argv.pop(1)
    target = TARGETS.get(name)
    if target is None:
        target = PROPERTIES[name].hypothesis.fuzz_one_input
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
