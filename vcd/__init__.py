"""vcd: the Volcano batch scheduler for Kubernetes, event-sourced, replayable and explainable."""

from vcd.api import PlanResult, plan
from vcd.model.version import __version__

__all__ = ["PlanResult", "__version__", "plan"]
