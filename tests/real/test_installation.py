"""Faults of the installation at a real API server: rights, policies, webhooks, CRDs and controllers that are missing or
fail. Each is named wherever people look, and nothing else is blamed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e import processes
from tests.e2e.cluster import Daemon, pod
from tests.e2e.test_installation import GAUGE
from tests.grafana.written import ALERTS
from tests.real.api import Refused
from tests.real.cluster import JOBS, RealCluster
from tests.real.controlplane import ControlPlane
from tests.real.webhook import DENIES, GONE, HANGS, Webhook
from tests.waiting import WAIT_LIMIT, until
from vcd.model.installation_faults import FAULTS

pytestmark = pytest.mark.real

Obj = dict[str, Any]
Fault = Callable[[RealCluster], AbstractAsyncContextManager[object]]
ROLES = "clusterroles.rbac.authorization.k8s.io"
POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
DENIED = "denies-podgroups"
PODGROUPS, QUEUES = "podgroups.scheduling.volcano.sh", "queues.scheduling.volcano.sh"
SHUT = "the gate is shut"
NOT_SERVED = "the API server does not serve it"


# --- faults -----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def without_the_right(cluster: RealCluster) -> AsyncIterator[None]:
    """Leave the role of deploy/ without the right to patch PodGroups; the next test applies it again."""
    role = cluster.store.get(ROLES, None, "vcd-scheduler")
    for rule in role["rules"]:
        if "podgroups" in rule["resources"] and "patch" in rule["verbs"]:
            rule["verbs"] = [verb for verb in rule["verbs"] if verb != "patch"]
    cluster.store.update(ROLES, role)
    yield
    await cluster.daemons[0].kill()
    assert all("podgroups" in each for each in cluster.refused)
    cluster.forbidden.clear()  # what the role lacks by this test's doing


@asynccontextmanager
async def denied_by_policy(cluster: RealCluster) -> AsyncIterator[None]:
    """Let an admission policy refuse each change of a PodGroup."""
    rule = {
        "apiGroups": ["scheduling.volcano.sh"], "apiVersions": ["*"], "operations": ["UPDATE"],
        "resources": ["podgroups"],
    }  # fmt: skip
    checks = [{"expression": "false", "message": "nobody changes a PodGroup"}]
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": checks}
    cluster.store.create(POLICIES, {"metadata": {"name": DENIED}, "spec": spec})
    bound = {"policyName": DENIED, "validationActions": ["Deny"]}
    cluster.store.create(BINDINGS, {"metadata": {"name": DENIED}, "spec": bound})
    try:
        yield
    finally:
        for resource in (BINDINGS, POLICIES):
            cluster.plane.api.clear(resource, None)
        await until_podgroups_may_change(cluster.plane)


async def until_podgroups_may_change(plane: ControlPlane) -> None:
    """Wait until no admission policy is in force any more: the API server lets go of one a second after its end."""
    group = {"metadata": {"name": "probe", "namespace": "default"}, "spec": {"minMember": 1}}
    plane.api.create(PODGROUPS, group)

    def may_change() -> bool:
        try:
            plane.api.update(PODGROUPS, plane.api.get(PODGROUPS, "default", "probe"))
        except Refused as error:
            assert error.status in (409, 422), error  # a conflict: the daemon wrote its status in between
            return False
        return True

    await until(may_change, what="the API server lets PodGroups be changed")
    plane.api.delete(PODGROUPS, "default", "probe", grace_period=0)


def webhook(how: str, resource: str) -> Fault:
    return lambda cluster: Webhook(cluster.plane, how, resource)


def without(*crds: str) -> Fault:
    @asynccontextmanager
    async def removed(cluster: RealCluster) -> AsyncIterator[None]:
        cluster.plane.remove_kinds(*crds)
        try:
            yield
        finally:
            cluster.plane.install_kinds()

    return removed


@asynccontextmanager
async def without_controllers(cluster: RealCluster) -> AsyncIterator[None]:
    """Nothing: none runs here. A Volcano Job gets neither PodGroup nor pods, and a pod no annotation."""
    template = {"spec": {"containers": [{"name": "c", "image": "pause"}]}}
    spec = {"schedulerName": "volcano", "minAvailable": 1, "tasks": [{"replicas": 1, "template": template}]}
    cluster.store.create(JOBS, {"metadata": {"name": "g", "namespace": "default"}, "spec": spec})
    yield


# --- what people submit -----------------------------------------------------------------------------------------------


def gangs(cluster: RealCluster) -> None:
    """A job that fits, and one that waits."""
    cluster.submit("g", 1)
    cluster.submit("large", 1, cpu=99)


def pod_of(group: str, cluster: RealCluster) -> None:
    """A pod that names a PodGroup which there is not, or none."""
    lone = pod("g-0", group)
    if not group:
        del lone["metadata"]["annotations"]
    cluster.store.create("pods", lone)


# --- what is expected -------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A fault, the (code, subject) of each series, and ``words`` of the cause; an Event has the ``reason``, and another
    one the reason that is in `FAULTS`. ``submit`` is what people submit, ``late`` that they did before the fault."""

    fault: Fault
    faults: tuple[tuple[str, str], ...]
    words: str
    reason: str
    submit: Callable[[RealCluster], None] = gangs
    late: bool = False


def refused(subject: str) -> tuple[tuple[str, str], ...]:
    return (("write-refused", subject),)


def not_listed(*kinds: str) -> tuple[tuple[str, str], ...]:
    return tuple(("kind-not-listed", kind) for kind in kinds)


CASES = {
    "no right": Case(without_the_right, refused("patch podgroups 403"), "cannot patch resource", "StatusRefused"),
    "policy": Case(denied_by_policy, refused("patch podgroups 422"), "nobody changes a PodGroup", "StatusRefused"),
    "webhook denies binds": Case(
        webhook(DENIES, "pods/binding"), refused("create pods/binding 400"), SHUT, "FailedScheduling"
    ),
    "webhook denies PodGroups": Case(
        webhook(DENIES, "podgroups"), refused("patch podgroups 400"), SHUT, "StatusRefused"
    ),
    "webhook denies pods": Case(
        webhook(DENIES, "pods/status"), refused("patch pods/status 400"), SHUT, "StatusRefused"
    ),
    "webhook is gone": Case(
        webhook(GONE, "podgroups"), refused("patch podgroups 500"), "connection refused", "StatusRefused"
    ),
    "webhook hangs on PodGroups": Case(
        webhook(HANGS, "podgroups"), (("write-unanswered", "patch podgroups"),), "namespace default", "WriteUnanswered"
    ),
    "webhook hangs on binds": Case(
        webhook(HANGS, "pods/binding"), (("write-unanswered", "create pods/binding"),), "no answer", "WriteUnanswered"
    ),
    "no CRDs": Case(
        without(PODGROUPS, QUEUES), not_listed("PodGroup", "Queue"), NOT_SERVED, "PodGroupMissing",
        partial(pod_of, "later"),
    ),
    "one CRD": Case(without(QUEUES), not_listed("Queue"), NOT_SERVED, "KindNotListed", lambda _: None),
    "CRDs deleted": Case(
        without(PODGROUPS, QUEUES), not_listed("PodGroup", "Queue"), NOT_SERVED, "PodGroupMissing", late=True
    ),
    "no controllers": Case(
        without_controllers, (("no-group", "default"),), "controllers run", "PodGroupMissing", partial(pod_of, "")
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_fault_is_named_wherever_people_look(plane: ControlPlane, tmp_path: Path, case: Case) -> None:
    async with RealCluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        if case.late:
            daemon = await cluster.started("a")
            case.submit(cluster)
            await cluster.until_bound(["default/g-0"])
        async with case.fault(cluster):
            if not case.late:
                daemon = await cluster.started("a")
                case.submit(cluster)
            await until_reported(daemon, case)
            await until(lambda: has_events(cluster, case), what="the Events")
            codes = [FAULTS[code] for code, _ in case.faults]
            assert await daemon.health("readyz") == (503 if any(code.not_ready for code in codes) else 200)
            for words in (["explain"], ["explain", "job", "g"], ["explain", "pod", "g-0"]):
                found = await explained(daemon, words)
                assert all(code.what in found for code in codes), found
                assert case.words in found
        if case.faults[0][0] == "kind-not-listed":  # and all goes on once they are applied
            await until_gone(daemon, case)
            cluster.submit("later", 1)
            await cluster.until_bound(["default/later-0"])


async def series_of(daemon: Daemon) -> dict[tuple[str, str], float]:
    """The values of the gauge by code and subject."""
    found = {name: value for name, value in (await daemon.metrics()).items() if name.startswith(GAUGE)}
    labels = {name: dict(re.findall(r'(\w+)="([^"]*)"', name)) for name in found}
    return {(labels[name]["code"], labels[name]["subject"]): value for name, value in found.items()}


async def until_reported(daemon: Daemon, case: Case) -> None:
    """Wait until the gauge has the faults; there are no others, and the alert is for them."""
    async with asyncio.timeout(WAIT_LIMIT):
        while not set(case.faults) <= (found := await series_of(daemon)).keys():  # noqa: ASYNC110 - it tells when asked
            await asyncio.sleep(0.05)
    assert found.keys() == set(case.faults)
    (alert,) = (rule for rule in ALERTS if rule["alert"] == "VcdInstallationFault")
    expression = f"max by (cluster, namespace, job, code, subject) ({GAUGE}) > 0"
    assert (alert["expr"], alert["for"]) == (expression, "1m")
    assert min(found.values()) > 0


async def until_gone(daemon: Daemon, case: Case) -> None:
    for code, subject in case.faults:
        await daemon.until_metric(f'{GAUGE}{{code="{code}",subject="{subject}"}}', None)
    assert await series_of(daemon) == {}


def has_events(cluster: RealCluster, case: Case) -> bool:
    """Whether there is an Event at the configuration where such a fault has one, and where the users look."""
    events = cluster.store.list("events")
    wanted = {case.reason, *(FAULTS[code].event for code, _ in case.faults)} - {""}
    return wanted <= {event["reason"] for event in events}


async def explained(daemon: Daemon, words: list[str]) -> str:
    """What `vcd explain` prints, notes included."""
    arguments = [*words, "--event-log", daemon.log]
    done = await asyncio.to_thread(processes.run, "vcd.cli:main", arguments, daemon.log.parent, {}, timeout=WAIT_LIMIT)
    return done.stderr + done.stdout
