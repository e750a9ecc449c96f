"""A third-party plugin that raises an error at the points that an object's pods name."""

from __future__ import annotations

from vcd.scheduling.framework import registry
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.session.views import Task

ENTRY = "\n  - name: raising"
"""The plugin's line in a configuration file, after another plugin of its tier."""
RAISES = "simulation.example/raises"
"""The annotation of a pod with the points at which the plugin raises an error for it, separated by blanks."""


class RaisingPlugin(Plugin):
    """Raises errors on request, and otherwise changes no decision."""

    name = "raising"
    keys = (RAISES,)

    def pre_predicate(self, task: Task) -> None:
        """Forbid nothing."""
        _raise_for(task, "pre_predicate")

    def task_order(self, task: Task) -> int:
        """Put no task first."""
        _raise_for(task, "task_order")
        return 0


def _raise_for(task: Task, point: str) -> None:
    if point in task.pod.metadata.annotations.get(RAISES, "").split():
        raise KeyError(point)


def is_of_plugin(fault: str) -> bool:
    """Return whether a fault in a plan is this plugin's intended error."""
    return fault.startswith(f"{RaisingPlugin.name}: ")


def without_it(conf: str) -> str:
    """Return a configuration without the plugin, which the slow reference does not have."""
    return conf.replace(ENTRY, "")


def install() -> None:
    """Offer the plugin to the daemons of this process, as an installed distribution would."""
    registry.plugins()._third_party[RaisingPlugin.name] = RaisingPlugin
