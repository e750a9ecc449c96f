"""Planted bugs that show at the edges: comparisons that lack one of their parts, late calls, pauses."""

from __future__ import annotations

from tests.simulation.mutants import replaces
from vcd.kube.lease import ADDRESS, LeaderElector, _annotations, _Lease, _Spec
from vcd.kube.watcher import Watcher
from vcd.scheduling.search.equivalence import ApplyingParts, EquivalenceKey, EquivalenceKeys
from vcd.scheduling.session.views import Task
from vcd.state.cluster_state import ClusterState

_compare = Watcher._compare


@replaces(Watcher._compare, found_by="state is the server's")
async def compared_in_the_past(self: Watcher, version: str) -> None:
    """A comparison restores old versions of objects, and the watch continues from its old position."""
    await _compare(self, str(max(1, int(version) - 20)))
    self._version = version


# --- parts of a key or of a comparison that are left out ------------------------------------------------------------

_observe, _find, _offered = LeaderElector._observe, EquivalenceKeys.find, ClusterState.offered


@replaces(
    LeaderElector._reread,
    found_by="tests/kube/test_lease.py::test_a_lease_that_another_process_of_the_same_name_took_ends_the_term",
)
async def lease_of_our_name_is_ours(self: LeaderElector, wanted: _Spec, sent: float) -> None:
    """A replica continues to lead when another process with its identity has taken the Lease for a new term."""
    lease = await self._get(left=self._leads_until - self.clock.monotonic())
    if lease is None or lease.spec.holder_identity != self.identity:
        return self._end_term("lease is another's")
    self._lease = lease
    self._observe(lease)
    if lease.spec == wanted:
        self._extend_term(sent)


@replaces(
    LeaderElector._observe,
    found_by="tests/kube/test_lease.py::test_a_log_is_followed_at_the_address_of_the_holder_alone",
)
def address_of_a_former_holder(self: LeaderElector, lease: _Lease) -> None:
    """Replicas follow the log of the holder before, although another scheduler holds the Lease."""
    _observe(self, lease)
    self.holder_address = str(_annotations(lease.metadata).get(ADDRESS) or "").rpartition(" ")[2]


@replaces(
    EquivalenceKeys.find,
    found_by="tests/scheduling/test_candidates.py::test_labels_tell_tasks_apart_only_where_pods_matter",
)
def table_of_other_labels(
    self: EquivalenceKeys, task: Task, moving: bool = True
) -> tuple[EquivalenceKey, ApplyingParts]:
    """Pods that differ in labels alone share a table: a pod is bound where anti-affinity keeps its label away."""
    kind, parts = _find(self, task, moving)
    return kind._replace(labels=None), parts


@replaces(
    ClusterState.offered,
    found_by="tests/state/test_cluster_state.py::test_resources_have_columns_if_nodes_offer_or_queues_limit_them",
)
def names_of_queues_forgotten(self: ClusterState) -> frozenset[str]:
    """A resource that only queues limit has no column, and their limits on it do not count."""
    queues, self.queues = self.queues, {}
    names = _offered(self)
    self.queues = queues
    return names
