"""vcd: the Volcano batch scheduler for Kubernetes, event-sourced, replayable and explainable."""

from vcd.api import PlanResult, __version__, explain, open, plan, replay

__all__ = ["PlanResult", "__version__", "explain", "open", "plan", "replay"]
