"""vcd: the Volcano batch scheduler for Kubernetes, event-sourced, replayable and explainable."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vcd.api import PlanResult, __version__, explain, open, plan, replay

__all__ = ["PlanResult", "__version__", "explain", "open", "plan", "replay"]


def __getattr__(name: str) -> Any:
    """Import ``vcd.api`` at the first use of its names, but not for the version."""
    if name not in __dir__():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module("vcd.model.version" if name == "__version__" else "vcd.api")
    return module if name == "api" else getattr(module, name)


def __dir__() -> list[str]:
    return [*__all__, "api"]
