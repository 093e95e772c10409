"""To get at what an application calls its own: `module:name`, as seen from the folder at hand."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from oncekey.errors import ConfigurationError

CALLED = "()"


def named_object(app: str) -> Any:
    """What `module:name` names; with `()` behind it, what it returns."""
    module, colon, name = app.partition(":")
    if not (module and colon and name):
        raise ConfigurationError(f"--app {app!r} names nothing: write module:name, such as shop:app or shop:once")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = importlib.import_module(module)
        for part in name.removesuffix(CALLED).split("."):
            found = getattr(found, part)
        return found() if name.endswith(CALLED) else found
    except AttributeError as missing:
        raise ConfigurationError(f"--app {app}: {missing}; correct what stands behind the colon") from missing
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module}.".startswith(f"{missing.name}."):
            raise ConfigurationError(f"--app {app} cannot be loaded: {missing}") from missing
        raise ConfigurationError(
            f"--app {app}: there is no module {missing.name} here: run this in the folder that has it, or correct "
            "the name"
        ) from missing
    except Exception as broken:
        raise ConfigurationError(f"--app {app} cannot be loaded: {type(broken).__name__}: {broken}") from broken
