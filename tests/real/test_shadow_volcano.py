"""A shadow beside vc-scheduler on a real API server, a workday long: it writes nothing, and all that it tells is true.

The truth is the API server's (its audit log, its watch of pods, its objects) and the rows of the shadow's own log.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import re
import signal
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tests.deploy.kustomize import render
from tests.e2e.beside import DECIDING, SHADOW
from tests.e2e.cluster import GROUPS, ROOT, Bound, Daemon, Obj, until
from tests.e2e.test_eviction import JOBS
from tests.e2e.test_shadow import bound_in
from tests.real import workday
from tests.real.api import Refused
from tests.real.cluster import ACCOUNT, VolcanoCluster
from tests.real.controlplane import NAMESPACE, AuditLog, ControlPlane
from tests.real.rows import Rows, check_session, sampled
from tests.real.volcano import SCHEDULER, scheduler_conf, scheduling
from vcd.cli import main
from vcd.timetravel.history import opened
from vcd.timetravel.shadow.shadow_comparison import ShadowComparison, compare_shadow

pytestmark = [pytest.mark.real, pytest.mark.volcano, pytest.mark.wide]

WAVE = 20
BEHIND = 100
"""Pods that may wait or run when the next wave of jobs comes."""
LATE = 15.0
"""Seconds after which the watch must have shown what the API server did, on a machine that has much to do."""


class ShadowedVolcano(VolcanoCluster):
    """One whose daemons may do what deploy/overlays/shadow lets them, and nothing else."""

    def __init__(self, folder: Path) -> None:
        for resource in ("rolebindings", "roles"):  # what the overlay has not, and other tests may have left
            try:
                self.plane.api.delete(f"{resource}.rbac.authorization.k8s.io", NAMESPACE, ACCOUNT)
            except Refused as error:
                assert error.status == 404, error
        self.at_work: set[str] = set()
        """The pods that wait or run, and are to end."""
        super().__init__(folder)

    def manifests(self) -> list[Obj]:
        return list(render(ROOT / "deploy" / "overlays" / "shadow").values())

    async def shadow(self, conf: Path) -> Daemon:
        daemon = await self.start(SHADOW, "--shadow", f"--scheduler-conf={conf}", "--schedule-period=1s")
        await until(lambda: daemon.lines(DECIDING), what="the shadow decides")
        return daemon

    def _note(self, event: str, resource: str, obj: Obj) -> None:
        super()._note(event, resource, obj)
        meta, ended = obj["metadata"], obj.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if ended or event == "DELETED":
            self.at_work.discard(meta["uid"])
        elif meta["namespace"] == "default" and not meta["name"].startswith(("web-", f"{workday.NEVER}-")):
            self.at_work.add(meta["uid"])

    async def submit(self) -> None:
        """All jobs in their time: as some end, others come."""
        jobs = list(workday.jobs())
        for number in range(0, len(jobs), WAVE):
            await until(lambda: len(self.at_work) < BEHIND, what="there is not too much to do")
            await asyncio.gather(*(asyncio.to_thread(self._create, each) for each in jobs[number : number + WAVE]))

    def _create(self, objects: list[tuple[str, Obj]]) -> None:
        for resource, obj in objects:
            self.store.create(resource, obj)

    def queues(self) -> dict[str, str]:
        """The queue of each group, by its key; of Volcano's jobs that have ended the group is gone."""
        found = {each["metadata"]["name"]: each["spec"]["queue"] for each in self.store.list(GROUPS, "default")}
        jobs = ((each["metadata"], each["spec"]["queue"]) for each in self.store.list(JOBS, "default"))
        found |= {f"{meta['name']}-{meta['uid']}": queue for meta, queue in jobs}
        return {f"default/{name}": queue for name, queue in found.items()}

    def all_done(self) -> bool:
        if self.at_work:
            return False
        phases = {each["status"].get("state", {}).get("phase") for each in self.store.list(JOBS, "default")}
        return phases == {"Completed"}


async def test_of_500_jobs_beside_vc_scheduler_every_difference_is_true(volcano: ControlPlane, tmp_path: Path) -> None:
    conf = tmp_path / "volcano-scheduler.conf"
    conf.write_text(
        re.sub("^actions:.*", 'actions: "enqueue, allocate, preempt, backfill"', scheduler_conf(), flags=re.M)
    )
    async with ShadowedVolcano(tmp_path) as cluster:
        workday.furnish(cluster)
        audit = AuditLog(volcano.audit)
        with scheduling(volcano, conf):
            wanted = {"root", "default", workday.NARROW, workday.RESEARCH}
            await until(lambda: wanted <= cluster.open_queues(), what="the queues are open")
            shadow = await cluster.shadow(conf)
            await cluster.submit()
            await until(cluster.all_done, what="all that can end has ended")
            queues = cluster.queues()
        await until(lambda: bound_in(shadow).keys() >= {bind.key for bind in cluster.binds}, what="the log shows it")
        shadow.signal(signal.SIGTERM)
        assert await shadow.ended() == 0
        binds = [bind for bind in cluster.binds if bind.key.startswith("default/")]
        found = compare_shadow(shadow.log)
        check_audit(list(audit.new()), binds, found)
        check_binds(found, binds)
        rows = Rows(shadow.log)
        for one in found.differences:
            rows.check(one, queues)
        rows.check_sums(found)
        with opened(shadow.log) as history:
            for one in sampled(found.differences):
                check_session(history, rows, one)
        check_command(shadow.log, found)


# --- by the API server ------------------------------------------------------------------------------------------------


def check_audit(lines: list[Obj], binds: list[Bound], found: ShadowComparison) -> None:
    """The shadow only read; it was vc-scheduler who bound, and when that is told is when it did."""
    ours = [line for line in lines if line["user"]["username"] == f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"]
    assert {line["verb"] for line in ours} == {"list", "watch"}
    bound = [line for line in lines if line.get("objectRef", {}).get("subresource") == "binding"]
    assert {line["user"]["username"] for line in bound} == {SCHEDULER}
    times: dict[str, list[tuple[float, float]]] = {}
    for line in bound:
        if done(line):
            key = f"{line['objectRef']['namespace']}/{line['objectRef']['name']}"
            came, answered = (seconds(line[each]) for each in ("requestReceivedTimestamp", "stageTimestamp"))
            times.setdefault(key, []).append((came, answered))
    assert {key: len(some) for key, some in times.items()} == Counter(bind.key for bind in binds)
    assert len(times) > workday.COUNT
    told = sorted((one for one in found.differences if one.bound_to), key=lambda one: one.bound_at)
    for key, some in times.items():
        shown = [seconds(one.bound_at) for one in told if one.pod == key]
        for (came, answered), at in zip(sorted(some), shown, strict=True):
            assert came - 0.001 <= at < answered + LATE, (key, came, answered, at)  # told in milliseconds


def seconds(moment: str) -> float:
    return datetime.datetime.fromisoformat(moment).timestamp()


def done(line: Obj) -> bool:
    return bool(line["responseStatus"]["code"] < 300)


def check_binds(found: ShadowComparison, binds: list[Bound]) -> None:
    """Each bind is told of once, with its node and in its time; nothing is told to be bound that was not."""
    told = {one.uid: one for one in found.differences}
    assert len(told) == len(found.differences)
    assert {uid: (one.pod, one.bound_to) for uid, one in told.items() if one.bound_to} == {
        bind.uid: (bind.key, bind.node) for bind in binds
    }
    assert all(one.timed for one in found.differences)


def check_command(log: Path, found: ShadowComparison) -> None:
    """What the command prints is the same."""
    printed = CliRunner().invoke(main, ["shadow", str(log), "-o", "json", "--limit=0"])
    assert printed.exit_code == 0, printed.output
    assert msgspec.convert(json.loads(printed.stdout), ShadowComparison) == found
