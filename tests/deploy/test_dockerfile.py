"""The Dockerfile, read: no image can be built where these tests run."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
DEPLOYMENT = yaml.safe_load((ROOT / "deploy" / "base" / "deployment.yaml").read_text())


class Step(NamedTuple):
    """One instruction with its arguments, continued lines joined."""

    instruction: str
    arguments: str


def stages() -> list[list[Step]]:
    """The instructions of each stage, its FROM first."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    result: list[list[Step]] = []
    for line in joined:
        instruction, _, arguments = line.partition(" ")
        if instruction == "FROM":
            result.append([])
        result[-1].append(Step(instruction, arguments.strip()))
    return result


def all_steps(instruction: str) -> list[str]:
    return [step.arguments for stage in stages() for step in stage if step.instruction == instruction]


def last_of_image(instruction: str) -> str:
    """The arguments of the instruction's last use in the stage that becomes the image."""
    return [step.arguments for step in stages()[-1] if step.instruction == instruction][-1]


def container() -> dict[str, object]:
    (found,) = DEPLOYMENT["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_the_bases_are_one_slim_image_pinned_by_its_digest() -> None:
    bases = {arguments.split()[0] for arguments in all_steps("FROM")} - {"build", "scratch"}
    (base,) = bases
    assert re.fullmatch(r"python:3\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)


def test_the_image_has_of_other_stages_the_environment_and_what_is_in_it() -> None:
    copied = [step.arguments for step in stages()[-1] if step.instruction == "COPY"]
    listed = "--from=listing /dist/vcd.cdx.json /usr/share/doc/vcd/sbom.cdx.json"
    assert copied == ["--from=build /opt/vcd /opt/vcd", listed]


def test_a_stage_writes_what_the_environment_holds() -> None:
    (listing,) = (stage for stage in stages() if stage[0].arguments == "build AS listing")
    assert "cyclonedx-py environment" in listing[-1].arguments
    assert listing[-1].arguments.endswith("-o /dist/vcd.cdx.json /opt/vcd/bin/python")
    (sbom,) = (stage for stage in stages() if stage[0].arguments == "scratch AS sbom")
    assert [step.arguments for step in sbom] == ["scratch AS sbom", "--from=listing /dist/vcd.cdx.json /"]


def test_it_runs_as_the_deployments_user() -> None:
    context = DEPLOYMENT["spec"]["template"]["spec"]["securityContext"]
    assert last_of_image("USER") == f"{context['runAsUser']}:{context['runAsGroup']}"


def test_the_build_is_told_its_version() -> None:
    """No git is in the context; without being told it would be called as the code states, whatever it is."""
    build = stages()[0]
    (place,) = [number for number, step in enumerate(build) if step == Step("ARG", "VCD_VERSION")]
    assert build[place + 1].arguments.startswith(': "${VCD_VERSION:?')
    assert "-m build --wheel" in build[place + 1].arguments
    command = ["make", "-n", "image", "VERSION=9.8.7+g1"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "docker build -f deploy/Dockerfile --build-arg VCD_VERSION=9.8.7+g1 -t vcd:9.8.7-g1 ." in made.stdout


def test_nothing_is_done_as_another_user_after_user() -> None:
    instructions = [step.instruction for step in stages()[-1]]
    assert not {"RUN", "COPY", "ADD"} & set(instructions[instructions.index("USER") :])


def test_it_starts_vcd_without_a_shell() -> None:
    assert json.loads(last_of_image("ENTRYPOINT")) == ["vcd"]
    assert json.loads(last_of_image("CMD"))[0] == "run"


def test_it_and_the_deployment_start_the_same_command() -> None:
    started = json.loads(last_of_image("ENTRYPOINT")) + json.loads(last_of_image("CMD"))
    assert started == container()["command"]


def test_its_ports_are_the_deployments() -> None:
    ports = container()["ports"]
    assert isinstance(ports, list)
    assert [int(port) for port in last_of_image("EXPOSE").split()] == [port["containerPort"] for port in ports]


def test_only_the_logs_folder_is_written() -> None:
    (volume,) = json.loads(last_of_image("VOLUME"))
    mounts = container()["volumeMounts"]
    assert isinstance(mounts, list)
    assert volume in {mount["mountPath"] for mount in mounts if not mount.get("readOnly")}
    assert "PYTHONDONTWRITEBYTECODE=1" in last_of_image("ENV").split()


def test_dependencies_are_the_locked_ones() -> None:
    installs = [
        command for run in all_steps("RUN") for command in run.split("&&") if re.search(r"/pip\b.* install\b", command)
    ]
    assert len(installs) == 3
    locks = [re.search(r" -c (\S+) ", command) for command in installs if "--no-cache-dir" in command]
    assert [lock and lock[1] for lock in locks] == ["constraints.txt", "constraints.txt", "sbom.txt"]


@pytest.mark.parametrize("word", ["ADD", "curl", "wget", "sudo", "apt-get", "--index-url", "--extra-index-url"])
def test_nothing_is_fetched_beside_the_locked_dependencies(word: str) -> None:
    assert word not in shlex.split(DOCKERFILE.read_text(), comments=True)


def test_no_address_is_named() -> None:
    assert "://" not in DOCKERFILE.read_text()


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    sources = [
        source for arguments in all_steps("COPY") if "--from=" not in arguments for source in arguments.split()[:-1]
    ]
    allowed = {
        line.removeprefix("!")
        for line in DOCKERFILE.with_name("Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert set(sources) == allowed
