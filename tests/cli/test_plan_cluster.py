"""``vcd plan --from-cluster``: against the embedded API server, with a kubeconfig and somebody's rights."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner, Result

from tests import dsl
from tests.cli.results import run_vcd as invoked
from tests.embedded.disturbed import DisturbedServer
from tests.embedded.serving import make_store
from vcd.cli.kubectl import kubectl_vcd
from vcd.daemon.reader import cluster_listing
from vcd.model.kinds import KINDS

NODES = ("n0", "n1")


@dataclass
class Served:
    """A server, and a kubeconfig for it with the contexts ``jane``, its user, and ``stranger``, whom nobody knows."""

    server: DisturbedServer
    kubeconfig: Path
    hidden: set[str] = field(default_factory=set)
    """What the user ``jane`` may not list."""

    async def plan(self, *arguments: object) -> Result:
        """Run ``vcd plan --from-cluster`` beside the server; a traceback fails the test."""
        given = ["plan", "--from-cluster", "--kubeconfig", self.kubeconfig, *arguments]
        return await asyncio.to_thread(invoked, *given)

    async def planned(self, *arguments: object) -> Any:
        result = await self.plan(*arguments, "-o", "json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


def kubeconfig(path: Path, url: str, current: str = "jane") -> Path:
    """A kubeconfig with a context for each user, whose tokens are their names, and one for who is unknown."""
    users = ("jane", "stranger")
    text = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": name, "user": {"token": f"token-of-{name}"}} for name in users],
        "contexts": [{"name": name, "context": {"cluster": "c", "user": name}} for name in users],
        "current-context": current,
    }
    path.write_text(yaml.safe_dump(text))
    return path


def objects() -> list[dsl.Manifest]:
    """Two nodes of 2 cpu; a gang that fits, one that does not, a pod and a gang of another scheduler, a set without its
    pods."""
    other = dsl.pod("other", cpu=1)
    other["spec"]["schedulerName"] = "default-scheduler"
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"schedulerName": "volcano", "containers": [container]}}
    replicas = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    queues = [dsl.queue("root"), dsl.queue("default"), dsl.queue("lab")]
    fits = dsl.gang("fits", 2, cpu=2, queue="lab", phase="Pending", minimum={"cpu": 4})
    waits = dsl.gang("waits", 2, cpu=3, queue="lab", phase="Pending", created=1)
    alien = dsl.gang("alien", 1, cpu=1, queue="lab", phase="Pending", spec={"schedulerName": "default-scheduler"})
    return list(dsl.flat([[dsl.node(name, cpu=2) for name in NODES], queues, alien, fits, waits, other, replicas]))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as served:
        yield served


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Served]:
    store = make_store()
    server = DisturbedServer(store, tokens={"token-of-jane": "jane"})
    await server.start("127.0.0.1", 0)
    served = Served(server, kubeconfig(folder / "kubeconfig", server.url))
    server.authorize = lambda who, call, name: call.verb in ("list", "get") and call.resource not in served.hidden
    for manifest in objects():
        kind = KINDS[manifest["kind"]]
        store.create(f"{kind.plural}.{kind.group}" if kind.group else kind.plural, manifest)
    for name in NODES:  # there is no kubelet that would say that they are ready
        node = store.get("nodes", None, name)
        store.update("nodes", {**node, "spec": {}})
    try:
        yield served
    finally:
        await server.stop()


def calls(served: Served) -> set[str]:
    """The verbs that were asked for."""
    return {call.verb for asked in served.server.audit.values() for call in asked}


# --- what is planned --------------------------------------------------------------------------------------------------


async def test_what_the_cluster_holds_is_planned(cluster: Served) -> None:
    found = await cluster.planned()
    assert found["binds"].keys() == {"default/fits-0", "default/fits-1"}
    assert set(found["binds"].values()) == set(NODES)
    assert found["phases"]["default/fits"] == "Inqueue"
    assert "predicate" in [reason["gate"] for reason in found["why"]["default/waits"]]
    assert found["cluster"] == {"server": cluster.server.url, "context": "", "missing": []}


async def test_nothing_but_lists_is_asked_for(cluster: Served) -> None:
    before = cluster.server.store.version
    await cluster.planned()
    assert calls(cluster) == {"list"}
    assert cluster.server.store.version == before


async def test_the_table_says_where_it_was_listed(cluster: Served) -> None:
    result = await cluster.plan()
    assert result.stdout.startswith("WOULD BIND  1 job, ")
    assert f"objects listed at {cluster.server.url}" in result.stderr


async def test_pods_of_other_schedulers_are_planned_only_when_these_are_named(cluster: Served) -> None:
    conf = ("--scheduler-name", "default-scheduler")
    assert (await cluster.planned(*conf))["binds"].keys() == {"default/other", "default/alien-0"}
    both = await cluster.planned(*conf, "--scheduler-name", "volcano")
    assert both["binds"].keys() >= {"default/other"}
    assert "default/fits" in both["phases"]


async def test_a_set_of_pods_gets_no_pods_that_are_not_listed(cluster: Served) -> None:
    found = await cluster.planned()
    assert not [name for name in (*found["binds"], *found["phases"]) if "web" in name]
    assert not found["notes"]


async def test_only_the_kinds_that_the_configuration_reads_are_listed(cluster: Served, tmp_path: Path) -> None:
    conf = tmp_path / "small.conf"
    conf.write_text('actions: "enqueue, allocate"\ntiers:\n- plugins:\n  - name: gang\n')
    await cluster.planned("--scheduler-conf", conf)
    listed_kinds = {call.resource for call in cluster.server.audit["jane"]}
    assert listed_kinds == {
        "pods",
        "nodes",
        "namespaces",
        "podgroups.scheduling.volcano.sh",
        "queues.scheduling.volcano.sh",
        "priorityclasses.scheduling.k8s.io",
    }


async def test_a_part_of_a_kind_takes_a_role_where_it_is(cluster: Served, tmp_path: Path) -> None:
    conf = tmp_path / "vgpu.conf"
    text = "actions: allocate\ntiers:\n- plugins:\n  - name: deviceshare\n"
    conf.write_text(text + "    arguments:\n      deviceshare.VGPUEnable: true\n")
    cluster.hidden.add("configmaps")
    found = await cluster.planned("--scheduler-conf", conf)
    (missing,) = found["cluster"]["missing"]
    assert missing["resource"] == "configmaps in namespace kube-system"
    assert missing["role"].startswith("a Role in namespace kube-system with verb list on configmaps (resourceNames ")
    assert "deviceshare reads it" in missing["without"]


# --- what may not be listed -------------------------------------------------------------------------------------------


async def test_what_may_not_be_listed_is_told_with_the_role_and_what_is_lacking(cluster: Served) -> None:
    cluster.hidden.add("queues.scheduling.volcano.sh")
    result = await cluster.plan()
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("warning:")]
    assert line == (
        "warning: may not list queues.scheduling.volcano.sh: grant a ClusterRole with verb list on queues of API"
        " group scheduling.volcano.sh; without it, only the queues default and root are known, without limits: jobs of"
        " other queues are not placed"
    )
    # what fits is in queue lab
    assert "no pod to bind or evict of what may be listed; see the warnings" in result.stdout


async def test_without_nodes_nothing_is_placed_and_it_is_said(cluster: Served) -> None:
    cluster.hidden.add("nodes")
    found = await cluster.planned()
    assert found["binds"] == {}
    assert [(one["resource"], one["why"]) for one in found["cluster"]["missing"]] == [("nodes", "forbidden")]
    assert found["cluster"]["missing"][0]["role"] == 'a ClusterRole with verb list on nodes of API group ""'


async def test_who_may_list_nothing_is_told_of_each_kind_and_that_this_is_no_decision(cluster: Served) -> None:
    cluster.server.authorize = lambda *_: False
    result = await cluster.plan()
    assert result.exit_code == 0, result.output
    warnings = [line for line in result.stderr.splitlines() if line.startswith("warning: may not list ")]
    assert any("may not list pods: grant a ClusterRole with verb list on pods" in line for line in warnings)
    assert len(warnings) == len({call.resource for call in cluster.server.audit["jane"]})
    assert result.stdout == "no pod to bind or evict of what may be listed; see the warnings\n"


def only_in(cluster: Served, namespace: str) -> None:
    """Let jane list what has namespaces in one alone."""
    cluster.server.authorize = lambda who, call, name: (
        call.verb in ("list", "get") and (call.namespace == namespace or call.resource in ("nodes", "namespaces"))
    )


async def test_what_may_be_listed_in_the_contexts_namespace_alone_is_listed_there(cluster: Served) -> None:
    only_in(cluster, "default")
    result = await cluster.plan()
    assert result.exit_code == 0, result.output
    (pods,) = [line for line in result.stderr.splitlines() if line.startswith("warning: may not list pods ")]
    assert pods == (
        "warning: may not list pods outside of namespace default: grant a ClusterRole with verb list on pods of API"
        ' group ""; without it, pods of other namespaces are not counted: nodes look emptier than they are'
    )
    found = await cluster.planned()
    assert found["phases"].keys() >= {"default/fits", "default/waits"}
    why = {one["resource"]: one["why"] for one in found["cluster"]["missing"]}
    assert why["pods"] == why["podgroups.scheduling.volcano.sh"] == "forbidden outside of namespace default"
    assert why["queues.scheduling.volcano.sh"] == "forbidden", "which has no namespace"
    assert (await cluster.plan("--strict")).exit_code == 2


@pytest.mark.parametrize("by", ["context", "flag", "plugin"])
async def test_the_namespace_is_the_contexts_unless_one_is_given(cluster: Served, by: str) -> None:
    only_in(cluster, "team")
    text = yaml.safe_load(cluster.kubeconfig.read_text())
    if by == "context":
        text["contexts"][0]["context"]["namespace"] = "team"
    else:
        text["contexts"][0]["context"]["namespace"] = "elsewhere"
    cluster.kubeconfig.write_text(yaml.safe_dump(text))
    if by == "plugin":
        given = ["-n", "team", "--kubeconfig", str(cluster.kubeconfig), "plan", "-o", "json"]
        result = await asyncio.to_thread(CliRunner().invoke, kubectl_vcd, given)
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
    else:
        found = await cluster.planned(*(("-n", "team") if by == "flag" else ()))
    assert "forbidden outside of namespace team" in {one["why"] for one in found["cluster"]["missing"]}


# --- as vcd run decides -----------------------------------------------------------------------------------------------


async def test_only_nodes_with_a_label_are_used_where_that_is_said(cluster: Served) -> None:
    node = cluster.server.store.get("nodes", None, NODES[1])
    labels = {**node["metadata"].get("labels", {}), "zone": "east"}
    cluster.server.store.update("nodes", {**node, "metadata": {**node["metadata"], "labels": labels}})
    assert set((await cluster.planned())["binds"].values()) == set(NODES)
    # both pods of the gang would have to be there
    assert (await cluster.planned("--node-selector", "zone:east"))["binds"] == {}
    both = await cluster.planned("--node-selector", "zone:east", "--scheduler-name", "default-scheduler")
    assert set(both["binds"].values()) == {NODES[1]}


async def test_a_pod_that_names_no_queue_is_in_the_default_one(cluster: Served) -> None:
    cluster.server.store.create("pods", dsl.pod("bare", cpu=2))
    queue = cluster.server.store.get("queues.scheduling.volcano.sh", None, "lab")
    narrow = {**queue["spec"], "capability": {"cpu": "1"}}
    cluster.server.store.update("queues.scheduling.volcano.sh", {**queue, "spec": narrow})
    assert "default/bare" in (await cluster.planned())["binds"]
    assert "default/bare" not in (await cluster.planned("--default-queue", "lab"))["binds"]
    # one that is not there is made by who leads
    assert "default/bare" in (await cluster.planned("--default-queue", "night"))["binds"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--node-selector", "zone"), "--node-selector: 'zone' is not a label; write it as key:value, as in zone:east"),
        (("--default-queue", ""), "--default-queue: must name a queue"),
    ],
)
def test_what_vcd_run_refuses_is_refused(arguments: tuple[str, ...], words: str) -> None:
    result = invoked("plan", "-f", "examples/gang.yaml", *arguments)
    assert (result.exit_code, words in " ".join(result.stderr.split())) == (2, True)


async def test_strictly_what_may_not_be_listed_is_an_error(cluster: Served) -> None:
    cluster.hidden.add("nodes")
    result = await cluster.plan("--strict")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error: may not list nodes: grant a ClusterRole" in result.stderr


async def test_a_kind_that_the_server_does_not_have_is_told(cluster: Served) -> None:
    cluster.server.store.registry.remove("podgroups.scheduling.volcano.sh")
    result = await cluster.plan()
    assert result.exit_code == 0, result.output
    assert "the server has no podgroups.scheduling.volcano.sh (is Volcano installed there?): no gang" in result.stderr


def test_each_kind_that_vcd_reads_says_what_is_lacking_without_it() -> None:
    assert cluster_listing.WITHOUT.keys() == KINDS.keys()


# --- no cluster -------------------------------------------------------------------------------------------------------


async def test_another_context_is_another_user(cluster: Served) -> None:
    result = await cluster.plan("--context", "stranger")
    assert result.exit_code == 2
    assert f"the API server at {cluster.server.url} does not know these credentials (401" in result.stderr
    assert "name another context with --context" in result.stderr


async def test_a_context_that_does_not_exist_is_told_with_those_that_do(cluster: Served) -> None:
    result = await cluster.plan("--context", "stringer")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"Error: kubeconfig {cluster.kubeconfig} has no context stringer; did you mean stranger?; it has jane, stranger"
    ]


async def test_a_context_is_enough_where_none_is_current(cluster: Served) -> None:
    kubeconfig(cluster.kubeconfig, cluster.server.url, current="")
    assert (await cluster.planned("--context", "jane"))["cluster"]["context"] == "jane"
    result = await cluster.plan()
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


def test_a_server_that_cannot_be_reached_is_told(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, and not listening: whoever connects is refused
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        result = invoked("plan", "--from-cluster", "--kubeconfig", kubeconfig(tmp_path / "k", url))
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: no API server can be reached at {url} (")
    assert line.endswith("is it the right context, and can it be reached from here?")


def test_a_server_that_never_answers_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_listing, "ANSWER_TIMEOUT", 0.1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        result = invoked("plan", "--from-cluster", "--kubeconfig", kubeconfig(tmp_path / "k", url))
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert f"no API server can be reached at {url}" in result.stderr


async def test_a_server_that_fails_is_told(cluster: Served) -> None:
    cluster.server.faults = lambda request: (
        web.json_response({"kind": "Status", "code": 500, "message": "etcd is gone"}, status=500)
        if request.path == "/api/v1/pods"
        else None
    )
    result = await cluster.plan()
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert f"the API server at {cluster.server.url} cannot be read (pods: 500: etcd is gone)" in result.stderr


async def test_what_is_no_api_server_is_told(cluster: Served) -> None:
    cluster.server.faults = lambda _: web.Response(text="<html>", content_type="text/html")
    result = await cluster.plan()
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert f"the API server at {cluster.server.url} cannot be read" in result.stderr


@pytest.mark.parametrize("text", ["", "a list: [", "[]", "apiVersion: v1\nkind: Config\n"])
def test_a_file_that_is_no_kubeconfig_is_told_in_a_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    result = invoked("plan", "--from-cluster", "--kubeconfig", file)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert f"kubeconfig {file} names no context that could be used" in result.stderr
    assert "NoneType" not in result.stderr and "indices" not in result.stderr


def test_no_kubeconfig_at_all_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    result = invoked("plan", "--from-cluster")
    assert (result.exit_code, "name one with --kubeconfig" in result.stderr) == (2, True)


async def test_the_environments_kubeconfig_is_used(cluster: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")  # as in a pod: one's own kubeconfig goes first
    result = await asyncio.to_thread(invoked, "plan", "--from-cluster", "-o", "json")
    assert json.loads(result.stdout)["cluster"]["server"] == cluster.server.url


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no input: give manifests with -f, or a running cluster with --from-cluster"),
        (("--from-cluster", "-f", "-"), "no input"),
        (("-f", "-", "--context", "x"), "are for --from-cluster"),
        (("-f", "-", "--kubeconfig", "x"), "are for --from-cluster"),
        (("-f", "-", "--namespace", "x"), "are for --from-cluster"),
        (("--from-cluster", "--kubeconfig", "/nowhere/k"), "kubeconfig /nowhere/k does not exist"),
        (("--from-cluster", "--scheduler-conf", "/nowhere/c"), "/nowhere/c: No such file"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_line(arguments: tuple[str, ...], words: str) -> None:
    result = invoked("plan", *arguments)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
