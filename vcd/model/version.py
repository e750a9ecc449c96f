"""The program's version, which is part of every session's record."""

from __future__ import annotations

import importlib

STATED = "0.2.0"
"""The version of the next tag, which is that of a checkout."""


def _version() -> str:
    try:
        built: str = importlib.import_module("vcd.model._version").BUILT
    except ModuleNotFoundError:
        return STATED
    return built


__version__ = _version()
"""The version of the running build (hatch_build.py)."""
