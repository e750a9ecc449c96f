"""Each command of the pages that tell what to do is run on logs that are made here, or with kubectl at the embedded
API server; or it is in a list with the reason."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests import dsl
from tests.cli.results import without_defect
from tests.embedded.serving import serving
from tests.timetravel.histories import CONF, write_takeover
from tests.timetravel.plays import Work, play
from tests.waiting import WAIT_LIMIT
from vcd.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    *("README.md", "docs/get-started.md", "docs/standalone.md", "docs/upgrading.md"),
    *("docs/manifests.md", "docs/python.md", "docs/howto/migrate.md", "docs/howto/shadow.md", "docs/howto/forecast.md"),
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs" / "operations").glob("*.md"))),
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs" / "runbooks").glob("*.md"))),
    "deploy/README.md",
)
BLOCK = re.compile(r"^( *)```(sh|console)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)

NOT_RUN = {
    "python3 -m venv ": "makes an environment: tests/deploy/test_wheel.py installs the wheel into one",
    "make demo": "tests/walkthrough and tests/e2e play what it does; it runs them with an environment of its own",
    "make image ": "no image can be built where these tests run: tests/deploy/test_dockerfile.py reads how",
    "(cd deploy/base && kustomize edit ": "changes the repository: tests/real/test_migration.py runs it in a copy",
    "helm install vcd ": "tests/deploy/test_helm_install.py installs the chart with these values",
    "helm upgrade volcano ": "of a repository of charts that is not here: tests/deploy holds the values to the chart",
    "kubectl vcd ": "needs a running scheduler's page: tests/external/test_kubectl_plugin.py has one",
    "vcd explain job train -n ml --from-cluster": "the same",
    "kubectl -n volcano-system patch deployment volcano-scheduler ": "tests/real/test_migration.py runs it",
    "kubectl -n volcano-system wait ": "the same",
    "kubectl -n volcano-system logs ": "there are no containers at the embedded server",
    "kubectl -n volcano-system top ": "there is no metrics server",
    "kubectl auth can-i ": "the embedded server reviews no access of one's own",
    "kubectl get apiservices": "the embedded server has no aggregated ones",
    "openssl s_client ": "asks the port that the command before forwards",
    "vcd explain eviction ": "nobody is evicted in these logs: tests/timetravel/test_eviction_explanation.py has one",
    "kubectl -n volcano-system exec ": "there are no containers at the embedded server",
    "kubectl apply -k ": "tests/deploy renders it and holds it to Kubernetes' schemas",
    "kubectl delete -k ": "the same",
    "kubectl -n volcano-system rollout status ": "there are no containers at the embedded server",
    "kubectl -n volcano-system scale ": "changes vc-scheduler's Deployment, which is not there",
    "kubectl -n volcano-system delete deployment ": "deletes vcd's, which is not there either",
    "kubectl -n volcano-system port-forward ": "goes on until it is told to stop",
    "vcd log tail events.sqlite -f": "goes on until it is told to stop: tests/cli/test_log.py",
    "vcd view ": "goes on until it is told to stop: tests/view/test_cli.py",
    "vcd run ": "goes on until it is told to stop: tests/e2e",
    "vcd log restore s3://": "needs a store: tests/external/test_s3_archive.py has one",
}
"""How commands begin that are not run here, and why."""
NUMBERS = {
    "120": "1", "140": "3", "--to 1200": "--to 2", "session 17": "session 2", "05:12": "00:00:20",
    "research": "default",
}  # fmt: skip
"""Sessions, times and queues that a log of the reader's own has, and those that stand for them in a log of a few."""


def commands(page: str) -> list[str]:
    """The commands of a page, each as one line."""
    found = []
    for _, language, block in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            if language == "console" and not line.startswith("$ "):
                continue
            command = re.sub(r"(^|\s+)#\s.*", "", line.strip().removeprefix("$ ")).strip()
            found += [re.sub(r"\s+", " ", command)] if command else []
    return found


ALL = [command for page in PAGES for command in commands(page)]
RUN = [command for command in dict.fromkeys(ALL) if not command.startswith(tuple(NOT_RUN))]
ON_FILES = [command for command in RUN if command.startswith("vcd ")]
WITH_KUBECTL = [command for command in RUN if command.startswith("kubectl ")]


def test_every_command_is_run_or_has_a_reason_and_every_reason_a_command() -> None:
    assert set(RUN) - {*ON_FILES, *WITH_KUBECTL} == set()
    assert [start for start in NOT_RUN if not any(command.startswith(start) for command in ALL)] == []
    assert len(ON_FILES) > 20


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that commands name: the log of a scheduler in which the gang ``train`` waits."""
    folder = tmp_path_factory.mktemp("logs")
    work = [Work("evaluate", 0, 30, cpu=2), Work("train", 10, 20, cpu=2)]
    asyncio.run(play(folder / "events.sqlite", [dsl.node("n", cpu=2)], work, seconds=25))
    for name in ("a", "b"):
        asyncio.run(write_takeover(folder / f"replica-{name}.sqlite"))
    shutil.copytree(ROOT / "examples", folder / "manifests", ignore=lambda *_: ["nights", "ci", "ingress", "launch"])
    shutil.copy(ROOT / "examples" / "too-large.yaml", folder / "job.yaml")
    (folder / "scheduler.conf").write_text(CONF)
    (folder / "other.conf").write_text(CONF)
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("nights"))
    return folder


async def shell(command: str, folder: Path, **environment: str) -> tuple[int, str]:
    """The exit code of a command line and all that it printed; a pipe fails where any part of it does."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    process = await asyncio.create_subprocess_exec(
        "bash", "-o", "pipefail", "-c", command, cwd=folder, env={**os.environ, "PATH": path, **environment},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await asyncio.wait_for(process.communicate(), WAIT_LIMIT)
    assert process.returncode is not None
    return process.returncode, output.decode()


SHELL = frozenset("|<>&;$`*'\"")
"""Characters that a shell interprets."""


def run(command: str, folder: Path) -> tuple[int, str]:
    """The same for a command of vcd: in this process where it needs no shell, since a process costs a second."""
    if not SHELL.isdisjoint(command):
        return asyncio.run(shell(command, folder))
    with contextlib.chdir(folder):
        result = CliRunner().invoke(main, command.split()[1:])
    without_defect(result)
    return result.exit_code, result.output


def prepared(command: str, logs: Path, folder: Path) -> str:
    """The command for this log, in a folder with copies of the files; what an earlier command writes is there, too."""
    shutil.copytree(logs, folder, dirs_exist_ok=True)
    for place, number in NUMBERS.items():
        command = re.sub(rf"{place}\b", number, command)
    if command.startswith("vcd sim "):
        (folder / "events.sqlite").unlink()
    if "case.sqlite" in command and " export " not in command:
        run("vcd log export events.sqlite case.sqlite", folder)
    if "older.sqlite" in command and " export " not in command:
        run("vcd log export events.sqlite older.sqlite --to 2", folder)
    if " --head " in command:
        _, printed = run("vcd log verify events.sqlite -o json", folder)
        command = re.sub(r"--head \S+", f"--head {json.loads(printed)['head']}", command)
    return command


@pytest.mark.parametrize("command", ON_FILES)
def test_a_command_on_files_ends_well(command: str, logs: Path, tmp_path: Path) -> None:
    code, printed = run(prepared(command, logs, tmp_path), tmp_path)
    assert (code, "Traceback" in printed) == (0, False), printed


@pytest.mark.external
@pytest.mark.parametrize("command", WITH_KUBECTL)
async def test_a_command_with_kubectl_ends_well(command: str, tmp_path: Path) -> None:
    async with serving() as api:
        config = {
            "clusters": [{"name": "c", "cluster": {"server": api.server.url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        data = {"volcano-scheduler.conf": CONF}
        name = {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"}
        api.server.store.create("namespaces", {"metadata": {"name": "volcano-system"}})
        api.server.store.create("configmaps", {"metadata": name, "data": data})
        lease = {"name": "volcano", "namespace": "volcano-system"}
        api.server.store.create("leases.coordination.k8s.io", {"metadata": lease, "spec": {}})
        queue = {"metadata": {"name": "research"}, "spec": {"weight": 1}}
        api.server.store.create("queues.scheduling.volcano.sh", queue)
        environment = {"KUBECONFIG": str(tmp_path / "kubeconfig"), "HOME": str(tmp_path)}
        code, printed = await shell(command, tmp_path, **environment)
        assert (code, "Traceback" in printed) == (0, False), printed
