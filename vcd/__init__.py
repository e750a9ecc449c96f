"""vcd: the Volcano batch scheduler for Kubernetes, event-sourced, replayable and explainable."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vcd.api import PlanResult, __version__, explain, open, plan, replay

__all__ = ["PlanResult", "__version__", "explain", "open", "plan", "replay"]


def __getattr__(name: str) -> Any:
    """What ``vcd.api`` offers, which is imported when the first of it is asked for."""
    if name not in __dir__():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    api = importlib.import_module("vcd.api")
    return api if name == "api" else getattr(api, name)


def __dir__() -> list[str]:
    return [*__all__, "api"]
