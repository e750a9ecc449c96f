"""helm installs, upgrades and uninstalls the chart at an API server: the embedded one, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.deploy.kustomize import Key, key, render
from tests.deploy.programs import go_tool, options_in
from tests.deploy.test_chart import CHART
from tests.deploy.test_manifests import INSTALLED, NAMESPACE, REPLACE, ROOT
from tests.waiting import WAIT_LIMIT
from vcd.daemon.options import split_address
from vcd.embedded.api_server import ApiServer
from vcd.embedded.store import Store
from vcd.serving.host_header import is_local, not_local, not_named

pytestmark = pytest.mark.external

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
MANAGER = "app.kubernetes.io/managed-by"
QUEUES = "queues.scheduling.volcano.sh"
REPLACING = ("--values", str(CHART / "examples" / "replace-vc-scheduler.yaml"))
# The embedded server has no admission policies.
ALONE = ("--values", str(CHART / "examples" / "standalone.yaml"), "--set", "validation.enabled=false")
RESOURCES = (
    "serviceaccounts",
    "configmaps",
    "services",
    "deployments.apps",
    "poddisruptionbudgets.policy",
    *(f"{kind}.rbac.authorization.k8s.io" for kind in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")),
)


class Helm:
    """Runs helm against a server; ``store`` is what it serves."""

    def __init__(self, program: str, server: ApiServer, home: Path) -> None:
        self.store = server.store
        self._command = (program, "--kube-apiserver", server.url, "--namespace", NAMESPACE)
        self._environ = {"HOME": str(home), "PATH": "/usr/bin:/bin"}

    async def run(self, *words: str) -> str:
        """The standard output of a command that must end well."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *words,
            env=self._environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, error = await asyncio.wait_for(process.communicate(), WAIT_LIMIT)
        assert process.returncode == 0, f"{words}: {out.decode()}{error.decode()}"
        return out.decode()

    async def install(self, *words: str) -> str:
        return await self.run("install", "vcd", str(CHART), "--create-namespace", *words)

    def objects(self) -> set[Key]:
        """What of the cluster is of a release, by key."""
        found = [each for resource in (*RESOURCES, QUEUES) for each in self.store.list(resource)]
        return {key(each) for each in found if each["metadata"].get("labels", {}).get(MANAGER) == "Helm"}

    def without_volcano(self) -> None:
        """Take out the custom resources that the embedded server begins with."""
        for definition in self.store.list(DEFINITIONS):
            self.store.delete(DEFINITIONS, None, definition["metadata"]["name"])
        assert self.store.registry.get(QUEUES) is None

    def container(self) -> Any:
        (container,) = self.store.get("deployments.apps", NAMESPACE, "vcd-scheduler")["spec"]["template"]["spec"][
            "containers"
        ]
        return container


@pytest.fixture
async def helm(tmp_path: Path) -> AsyncIterator[Helm]:
    server = ApiServer(Store())
    await server.start("127.0.0.1", 0)
    try:
        yield Helm(go_tool("helm"), server, tmp_path)
    finally:
        await server.stop()


async def test_in_a_volcano_installation(helm: Helm) -> None:
    await helm.install(*REPLACING)
    expected = {where for where in render(REPLACE) if where[0] != "ConfigMap"}
    assert helm.objects() == expected
    assert "--leader-elect-resource-namespace=volcano-system" in helm.container()["args"]


async def test_a_queue_of_ones_own_comes_with_the_custom_resources(helm: Helm) -> None:
    helm.without_volcano()
    await helm.install(*ALONE, "--set", "defaultQueue.create=true,defaultQueue.spec.weight=3")
    there = {each["metadata"]["name"] for each in helm.store.list(DEFINITIONS)}
    assert there == {".".join(reversed(name.removesuffix(".yaml").split("_"))) for name in INSTALLED}
    assert helm.store.get(QUEUES, None, "default")["spec"]["weight"] == 3


async def test_custom_resources_are_not_installed_unless_asked_for(helm: Helm) -> None:
    helm.without_volcano()
    await helm.install()
    assert helm.store.list(DEFINITIONS) == []


async def test_an_upgrade_changes_what_is_there(helm: Helm) -> None:
    await helm.install()
    before = helm.objects()
    await helm.run("upgrade", "vcd", str(CHART), "--reuse-values", "--set", "image.tag=new,page.enabled=true")
    added = {("ClusterRole", "", "vcd-scheduler-page"), ("ClusterRoleBinding", "", "vcd-scheduler-page")}
    assert helm.objects() == before | added | {("ClusterRole", "", "vcd-page-reader")}
    assert helm.container()["image"] == "vcd:new"
    assert {port["name"] for port in helm.container()["ports"]} == {"metrics", "healthz", "page", "log"}


def upgrade_to(example: str) -> list[str]:
    """The words of the chart's README that upgrade a release with an example, after helm's global ones."""
    readme = (CHART / "README.md").read_text().replace("\\\n", " ")
    (line,) = [line for line in readme.splitlines() if line.startswith("helm upgrade ") and example in line]
    words = line.split()[1:]
    assert words[words.index("--namespace") + 1] == NAMESPACE
    return [str(ROOT / word) if word.startswith("deploy/") else word for word in words]


async def test_the_readmes_upgrade_keeps_what_the_release_was_given(helm: Helm, tmp_path: Path) -> None:
    configuration = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n"
    (tmp_path / "scheduler.conf").write_text(configuration)
    given = ("--set", "image.repository=registry.example.com/vcd,image.tag=mine,scheduler.controllers={podgroup,queue}")
    await helm.install(*given, "--set-file", f"scheduler.configuration={tmp_path / 'scheduler.conf'}")
    await helm.run(*upgrade_to("page-behind-ingress.yaml"))
    container = helm.container()
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert container["image"] == "registry.example.com/vcd:mine"
    assert variables["VCD_CONTROLLERS"] == "podgroup,queue"
    assert variables["VCD_PAGE_HOST"] == "vcd.example.com"
    written = helm.store.get("configmaps", NAMESPACE, "vcd-scheduler-configmap")["data"]
    assert written == {"volcano-scheduler.conf": configuration}


async def test_an_uninstallation_leaves_custom_resources_and_the_queue(helm: Helm) -> None:
    helm.without_volcano()
    await helm.install(*ALONE, "--set", "defaultQueue.create=true")
    await helm.run("uninstall", "vcd")
    assert helm.objects() == {("Queue", "", "default")}
    assert len(helm.store.list(DEFINITIONS)) == len(INSTALLED)


async def test_the_notes_say_what_to_look_at(helm: Helm) -> None:
    text = await helm.install()
    assert "kubectl -n volcano-system rollout status deployment/vcd-scheduler" in text
    assert "kubectl -n volcano-system get lease volcano" in text
    assert "vcd log tail /var/lib/vcd/events.sqlite" in text
    assert "WARNING" not in text


async def test_the_notes_let_who_asks_read_the_lease_wherever_it_is(helm: Helm) -> None:
    text = await helm.install("--dry-run=client", "--set", "leaderElection.namespace=leases")
    for namespace in (NAMESPACE, "leases"):
        assert f"kubectl -n {namespace} create rolebinding vcd-operators --role=vcd-operator" in text


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("page.enabled=false,page.hosts={vcd.example.com},tls.secretName=mine", "http://localhost:8090/"),
        ("page.enabled=true", "http://localhost:8090/"),
        ("page.enabled=true,tls.secretName=mine", "https://localhost:8090/"),
        ("page.enabled=true,page.hosts={vcd.example.com}", "http://vcd.example.com:8090/"),
        ("page.enabled=true,page.hosts={vcd.example.com},tls.secretName=mine", "https://vcd.example.com:8090/"),
        ("page.enabled=true,page.hosts={vcd.example.com,localhost}", "http://localhost:8090/"),
        ("page.enabled=true,page.hosts={2001:db8::7,::1}", "http://[::1]:8090/"),
    ],
)
async def test_the_notes_name_the_page_as_it_answers(helm: Helm, given: str, url: str) -> None:
    text = await helm.install("--set", given)
    assert f"port-forward deployment/vcd-scheduler 8090    # then {url}\n" in text
    options = options_in({"": helm.store.get("deployments.apps", NAMESPACE, "vcd-scheduler")}, NAMESPACE)
    host, _ = split_address(options.view_address, "")
    name = urlsplit(url).netloc
    assert (not_local(name) if is_local(host) else not_named(name, options.page_hosts)) is None
    assert (urlsplit(url).scheme == "https") is (not is_local(host) and options.tls_cert_file is not None)
    assert ("to 127.0.0.1 in your /etc/hosts" in text) is ("vcd.example.com" in url)


async def test_the_notes_follow_the_values(helm: Helm) -> None:
    given = "eventLog.storage.type=persistent,page.enabled=true,replicas=1,rbac.create=false"
    # The embedded server lets no StatefulSet be made.
    dry = ("--dry-run=client", "--disable-openapi-validation", "--namespace", "batch")
    text = await helm.install(*dry, "--set", given)
    assert "kubectl -n batch rollout status statefulset/vcd-scheduler" in text
    assert "--clusterrole=vcd-page-reader" in text
    assert "the Lease is batch/volcano, vc-scheduler's is volcano-system/volcano" in text
    assert "tls.secretName is empty" in text
    assert text.count("WARNING") == 4
    assert "eventLog.storage.type" not in text
