"""What tests/e2e tries at the embedded server, at a real one: the same tests, as they are.

Not those that have the server misbehave, since a real one has no hooks for that; a wire that is held or cut, a process
that is killed or stands still, and a Lease that is stolen are tried here, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import (
    test_crash,
    test_first_queues,
    test_leadership,
    test_own_kinds,
    test_pending_pods,
    test_queue_gate,
    test_replicas,
    test_shapes,
    test_start,
    test_volumes,
)
from tests.e2e.cluster import Cluster
from tests.real.cluster import RealCluster
from tests.real.controlplane import ControlPlane

pytestmark = pytest.mark.real

Test = Callable[..., Awaitable[None]]


class Replicas(test_replicas.Replicas, RealCluster):
    """Replicas of one log, by deploy/components/one-log."""

    components = ("queue-gates", "one-log")

    def _token_file(self, name: str) -> Path:
        path = self.folder / f"token-of-{name}"
        path.write_text(self.token(name, "vcd"))
        return path


class Volumes(test_volumes.Volumes, RealCluster):
    """As there."""


REAL: dict[type, Any] = {
    Cluster: RealCluster,
    test_replicas.Replicas: Replicas,
    test_volumes.Volumes: Volumes,
}

TESTS: list[Test] = [
    test_leadership.test_of_two_replicas_one_schedules_and_sigterm_gives_the_lease_to_the_other,
    test_leadership.test_a_killed_leader_is_followed_in_the_time_that_law_4_states,
    test_leadership.test_a_leader_whose_connection_is_lost_stops_before_another_may_lead,
    test_leadership.test_a_stolen_or_deleted_lease_ends_the_term_and_no_epoch_is_used_again,
    test_leadership.test_watches_that_nothing_happens_on_cost_no_leadership,
    test_crash.test_kills_at_random_moments_leave_every_gang_bound_once,
    test_crash.test_a_log_that_another_process_writes_is_not_shared,
    test_first_queues.test_what_is_there_is_left_alone,
    test_own_kinds.test_pods_of_services_and_sets_are_spread,
    test_pending_pods.test_every_pod_of_a_gang_that_waits_is_unschedulable_with_the_real_reason,
    test_pending_pods.test_writing_the_statuses_of_waiting_groups_reads_none_of_them,
    test_pending_pods.test_a_verdict_is_not_written_again_after_a_restart_or_by_a_new_leader,
    test_queue_gate.test_the_gate_is_lifted_as_far_as_the_queue_has_room,
    test_replicas.test_who_follows_has_the_leaders_sessions_and_asks_nothing_of_the_api_server,
    test_replicas.test_a_killed_leader_takes_no_session_with_it,
    test_replicas.test_one_that_stood_still_while_another_led_goes_back_to_its_log,
    test_replicas.test_a_leader_that_is_stopped_hands_all_over,
    test_replicas.test_all_replicas_are_replaced_one_after_the_other_and_each_knows_what_was_before,
    test_replicas.test_beside_a_leader_that_is_not_followed_a_replica_is_ready,
    test_shapes.test_pods_of_one_template_are_of_one_shape,
    test_start.test_a_restart_goes_on_from_the_log,
    test_start.test_two_schedulers_of_one_name_without_flags_elect_one,
    test_volumes.test_a_pod_runs_where_its_local_volume_is,
    test_volumes.test_two_pods_get_two_local_volumes,
]


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__.removeprefix("test_"))
async def test_it_holds_here_too(
    test: Test, plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = inspect.getmodule(test)
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and value in REAL:
            monkeypatch.setattr(module, name, REAL[value])
    await test(tmp_path)
