"""A planted cluster as it goes: driven by hand in simulated time, or under a daemon at the embedded API server."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.e2e.cluster import Cluster, Daemon, until
from tests.planted.plant import Manifest, Named, Plant, Stage, group_of, key_of
from tests.timetravel.histories import Scheduler, scheduler
from vcd.embedded.store import Store
from vcd.eventlog import LogReader
from vcd.model.objects import Pod

CYCLES = 4
"""Sessions in each stage by hand: the first two at once, as what they do shows; then time passes."""


class Ran(NamedTuple):
    """What became of a plant: the nodes of the pods that are there at the end, by key; empty where one has none."""

    plant: Plant
    nodes: dict[str, str]

    @property
    def started(self) -> bool:
        """Whether the asked job has its minimum on nodes."""
        return self.placed(self.plant.asked) >= self.plant.minimum

    def placed(self, key: str) -> int:
        """How many pods of a job have a node."""
        pods = {
            key_of(m) for stage in self.plant.stages for m in stage.put if m["kind"] == "Pod" and group_of(m) == key
        }
        return sum(bool(self.nodes.get(pod)) for pod in pods)


# --- by hand ----------------------------------------------------------------------------------------------------------


async def by_hand(plant: Plant, path: Path) -> Ran:
    """The log at ``path`` of sessions that are driven by hand, and what became of the plant in them."""
    async with scheduler(path, plant.conf) as made:
        for stage in plant.stages:
            await _change(made, stage)
            for number in range(CYCLES):
                seconds = 1.0 if number < 2 else (stage.seconds - 2) / (CYCLES - 2)
                await made.carry_out(await made.cycle(seconds=seconds))
        pods = {key: made.state.pod(key) for key in made.state.tasks.row_of}
    return Ran(plant, {key: pod.spec.node_name for key, pod in pods.items() if isinstance(pod, Pod)})


async def _change(made: Scheduler, stage: Stage) -> None:
    for kind, key in stage.gone:
        await made.delete(kind, key)
    await made.show(copy.deepcopy(list(stage.put)))


# --- under a daemon ---------------------------------------------------------------------------------------------------

RESOURCES = {
    "PriorityClass": "priorityclasses.scheduling.k8s.io",
    "Queue": "queues.scheduling.volcano.sh",
    "Node": "nodes",
    "PersistentVolume": "persistentvolumes",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PodGroup": "podgroups.scheduling.volcano.sh",
    "Pod": "pods",
    "ResourceQuota": "resourcequotas",
}
"""Where the API server has the kinds, in the order in which they are created. A quota that is lower than what its
namespace uses would refuse pods."""
NOT_READY = "node.kubernetes.io/not-ready"
HELD = 3.0
"""How many times as long as all stages before it the last one is left as it is: its cause is the one that counts."""
QUIET = 1.2
"""Seconds in which nothing is logged once a stage is over."""


class Served(NamedTuple):
    """What a daemon left of a plant: its log, the conditions of the group that is asked for by type, and its metrics
    by name and labels."""

    log: Path
    conditions: dict[str, dict[str, str]]
    metrics: dict[str, float]


async def under_a_daemon(plant: Plant, folder: Path) -> Served:
    """What is left of a daemon that was ended after it had seen the last stage."""
    async with Cluster(folder) as cluster:
        for name in plant.namespaces:
            if cluster.store.find("namespaces", None, name) is None:
                cluster.store.create("namespaces", {"metadata": {"name": name}})
        conf = folder / "scheduler.conf"
        conf.write_text(plant.conf)
        _put(cluster.store, plant.stages[0].put)
        await until(lambda: _at_rest(cluster.store), what="nodes are ready, and what runs has its status")
        _let_go(cluster.store, plant.stages[0].put)
        daemon = await cluster.started("planted", f"--scheduler-conf={conf}", E2E_ASKED="0")
        began = time.monotonic()
        await _settled(cluster, daemon, plant.stages[0], 0)
        for stage in plant.stages[1:]:
            before, told = time.monotonic() - began, _decided(daemon)
            _remove(cluster.store, stage.gone)
            _put(cluster.store, stage.put)
            await _settled(cluster, daemon, stage, told)
        if len(plant.stages) > 1:
            over = time.monotonic() + HELD * before
            await until(lambda: time.monotonic() > over, what="the last stage lasts")
        logged = _logged(daemon)
        cluster.store.patch("queues.scheduling.volcano.sh", None, "root", {"metadata": {"labels": {"seen": "yes"}}})
        await until(lambda: _logged(daemon) > logged, what="the log's end is now")
        metrics = await daemon.metrics()
        daemon.process.terminate()
        await daemon.ended()
        group = cluster.store.get("podgroups.scheduling.volcano.sh", *plant.asked.split("/"))
        shown = {one["type"]: one for one in group.get("status", {}).get("conditions", ())}
        return Served(daemon.log, shown, metrics)


async def _settled(cluster: Cluster, daemon: Daemon, stage: Stage, told: int) -> None:
    """Return once a session has been decided on the stage, what shall run does, and nothing happens any more."""
    await until(lambda: _decided(daemon) > told, what="a session")
    for key in stage.runs:
        await until(lambda key=key: _runs(cluster.store, key), what=f"{key} runs")  # type: ignore[misc]
    last, since = _logged(daemon), time.monotonic()

    def quiet() -> bool:
        nonlocal last, since
        if last != (now := _logged(daemon)):
            last, since = now, time.monotonic()
        return time.monotonic() - since > QUIET

    await until(quiet, what="quiet")


def _decided(daemon: Daemon) -> int:
    if not daemon.log.exists():
        return 0
    with LogReader(daemon.log) as reader:
        return reader.last_session()


def _logged(daemon: Daemon) -> int:
    with LogReader(daemon.log) as reader:
        return reader.head()


def _runs(store: Store, key: str) -> bool:
    pods = [pod for pod in store.list("pods") if group_of(pod) == key]
    return bool(pods) and all((pod.get("status") or {}).get("phase") == "Running" for pod in pods)


def _put(store: Store, manifests: Iterable[Manifest]) -> None:
    """Create objects in the order of their kinds, or change existing ones; then write their status."""
    ordered = sorted(manifests, key=lambda manifest: list(RESOURCES).index(manifest["kind"]))
    for manifest in copy.deepcopy(ordered):
        resource, meta = RESOURCES[manifest["kind"]], manifest["metadata"]
        place = resource, meta.get("namespace"), meta["name"]
        if store.find(*place) is None:
            store.create(
                resource, {**manifest, "metadata": {k: v for k, v in meta.items() if k != "deletionTimestamp"}}
            )
        else:
            store.patch(*place, {"metadata": {"annotations": meta.get("annotations")}, "spec": manifest["spec"]})
        status = manifest.get("status")
        if status and manifest["kind"] != "Node":
            store.patch(*place, {"status": status}, "status")


def _at_rest(store: Store) -> bool:
    """Whether kubelets have found their nodes ready and their pods running."""
    ready = all(taint["key"] != NOT_READY for node in store.list("nodes") for taint in node["spec"].get("taints") or ())
    return ready and all(
        (pod.get("status") or {}).get("phase") == "Running" for pod in store.list("pods") if pod["spec"].get("nodeName")
    )


def _let_go(store: Store, manifests: Iterable[Manifest]) -> None:
    """Delete pods that are said to be on their way out; they stay for their grace."""
    for manifest in manifests:
        if manifest["kind"] == "Pod" and "deletionTimestamp" in manifest["metadata"]:
            store.delete("pods", manifest["metadata"]["namespace"], manifest["metadata"]["name"])


def _remove(store: Store, names: Iterable[Named]) -> None:
    for kind, key in names:
        namespace, _, name = key.rpartition("/")
        store.delete(RESOURCES[kind], namespace or None, name, grace_period=0)
