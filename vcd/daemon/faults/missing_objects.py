"""Finds objects that jobs lack and other components must create: PodGroups for pods, pods for PodGroups, nodes.

Volcano's controllers create a PodGroup shortly after its pod, and pods shortly after their PodGroup is admitted, so
only longer absences are reported. No session considers a pod without a PodGroup, so its Event and condition are created
here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import numpy as np

from vcd.daemon.faults.fault_monitor import Sighting
from vcd.kube.clock import SYSTEM_CLOCK, Clock
from vcd.model.controllers import GROUP_NAME
from vcd.model.objects import Pod
from vcd.model.status import Phase, TaskStatus
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import selected_nodes

PATIENCE = 5.0
"""Seconds for which a pod may lack its group."""
NO_PODS_AFTER = 300.0
"""Seconds for which an admitted group may lack all pods."""
_AT_ONCE = 500
"""The most pods reported in one check, to keep the event loop responsive."""
_UNNAMED = f"pods have no annotation {GROUP_NAME}"
_MISSING = f"the PodGroup that pods name in {GROUP_NAME} does not exist"


def pods_without_group(state: ClusterState) -> list[str]:
    """Return the keys of vcd's pending pods that name no PodGroup, or one that does not exist."""
    tasks, names = state.tasks, state.settings.scheduler_names
    ours = [number for number, name in enumerate(state.schedulers.values) if name in names or not names]
    jobs = tasks.column("job")
    lacks = jobs < 0
    if state.former:
        # an invalid PodGroup exists, and has its own Event
        missing = [state.job_keys.number(key) for key in state.former if ("PodGroup", key) not in state.bad]
        lacks = lacks | np.isin(jobs, [number for number in missing if number is not None])
    waits = (tasks.column("status") == TaskStatus.PENDING) & np.isin(tasks.column("scheduler"), ours)
    return [key for row in np.flatnonzero(lacks & waits).tolist() if (key := tasks.keys[row]) is not None]


@dataclass(eq=False)
class PodsWithoutGroup:
    """Finds pods that lack a PodGroup, and passes each to ``tell`` once, with the reason, while this replica ``leads``.

    ``not_listed`` returns whether PodGroups cannot be listed. Then every pod lacks its group, which is reported as
    another fault.
    """

    state: ClusterState
    leads: Callable[[], bool]
    tell: Callable[[Pod, str], None]
    not_listed: Callable[[], bool] = lambda: False
    _: KW_ONLY
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self._since: dict[str, float] = {}
        """When pods were first found without a group, by key."""
        self._reported: dict[str, tuple[str, str]] = {}
        """UIDs of reported pods and the reported reason, by key."""
        self._was_not_listed = False

    def look(self) -> dict[str, Sighting]:
        """Return the namespaces with pods that lack a group for `PATIENCE`."""
        now, not_listed = self.clock.monotonic(), self.not_listed()
        known = self._since if not_listed or not self._was_not_listed else {}  # groups could not be created before
        self._since = {key: known.get(key, now) for key in pods_without_group(self.state)}
        self._was_not_listed = not_listed
        due = [key for key, since in self._since.items() if now - since >= PATIENCE]
        self._report(due, not_listed=not_listed)
        if not_listed:
            return {}
        counts = Counter(key.partition("/")[0] for key in due)
        first = {key.partition("/")[0]: key for key in reversed(due)}
        return {name: Sighting(self._why(first[name]), count) for name, count in counts.items()}

    def _why(self, key: str) -> str:
        return _UNNAMED if self.state.tasks.at(self.state.tasks.row_of[key], "job") < 0 else _MISSING

    def _report(self, due: list[str], *, not_listed: bool) -> None:
        earlier = self._reported if self.leads() else {}
        self._reported = {key: earlier[key] for key in due if key in earlier}
        reported = 0
        for key in due:
            pod = self.state.pod(key)
            if pod is None or not self.leads():
                continue
            if not pod.group_key and "podgroup" in self.state.settings.controllers:
                continue  # `PodGroups` creates its group, or reports why it cannot
            words = _words(pod, not_listed=not_listed)
            if self._reported.get(key) == (pod.metadata.uid, words):
                continue
            self._reported[key] = pod.metadata.uid, words
            self.tell(pod, words)
            if (reported := reported + 1) == _AT_ONCE:
                return


def _words(pod: Pod, *, not_listed: bool) -> str:
    """Return why no session considers a pod, and what to do."""
    if not_listed:
        why = "PodGroups cannot be listed; look whether their CRD is applied, and at vcd's role"
    elif pod.group_key:
        why = f"its PodGroup {pod.group_key.partition('/')[2]} does not exist in its namespace; create it"
    else:
        do = "look whether Volcano's controllers run, or use vcd run --controllers=podgroup"
        why = f"it has no annotation {GROUP_NAME}; {do}"
    return f"no session considers this pod: {why}"


@dataclass(eq=False)
class GroupsWithoutPods:
    """Finds admitted PodGroups without pods."""

    state: ClusterState
    _: KW_ONLY
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        self._since: dict[str, float] = {}
        """When groups were first found without pods, by key."""

    def look(self) -> dict[str, Sighting]:
        """Return the namespaces with such groups for `NO_PODS_AFTER`."""
        now, uses = self.clock.monotonic(), self.state.job_keys.uses
        found = [key for key, one in self.state.groups.items() if one.phase is Phase.INQUEUE and not uses(key)]
        self._since = {key: self._since.get(key, now) for key in found}
        due = [key for key, since in self._since.items() if now - since >= NO_PODS_AFTER]
        counts = Counter(key.partition("/")[0] for key in due)
        return {name: Sighting("no pod names these PodGroups", count) for name, count in counts.items()}


def jobs_without_nodes(state: ClusterState) -> dict[str, Sighting]:
    """Return the fault that jobs wait while this scheduler has no node."""
    if not state.waiting or "Node" not in state.listed or selected_nodes(state.nodes, state.settings.node_selector):
        return {}
    waiting = len(state.waiting)
    if state.nodes:
        return {"--node-selector": Sighting("no node has one of these labels", waiting)}
    return {"cluster": Sighting("the API server lists no Node", waiting)}
