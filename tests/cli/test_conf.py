"""``vcd conf``: what it prints and how it exits."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.deploy.rbac import Grant, grants
from vcd.cli.conf import conf
from vcd.cli.kubectl import kubectl_vcd
from vcd.eventlog.log_writer import EventLog
from vcd.model.events import PolicyLoaded
from vcd.model.kinds import KINDS, Kind
from vcd.model.objects import Object
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework import policy, registry
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.policy import DEFAULT_POLICY
from vcd.scheduling.framework.registry import ALWAYS_READ

READ = ("list", "watch")

GOOD = """\
actions: allocate
tiers:
- plugins:
  - name: gang
    enablePreemptable: false
  - name: binpack
    arguments:
      binpack.weight: 10
"""
WARNED = GOOD + "    enableVictim: true\n"
BAD = GOOD.replace("allocate", "allocat").replace("10", "-1")


class Binpack(Plugin):
    """With one argument that the file gives and one that it does not."""

    name = "binpack"
    arguments = (
        Argument("binpack.weight", "int", 1, "weight of the score", minimum=0),
        Argument("binpack.cpu", "int", 3, "weight of cpu"),
    )


class Allocate(Action):
    """With an argument."""

    name = "allocate"
    arguments = (Argument("predicateErrorCacheEnable", "bool", True, "keep failures"),)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugins and actions that these tests' files may name."""
    plugins = {"binpack": Binpack, **{name: type(name, (Plugin,), {"name": name}) for name in ("gang", *_defaults())}}
    actions = {
        "allocate": Allocate,
        **{name: type(name, (Action,), {"name": name}) for name in ("enqueue", "backfill")},
    }
    monkeypatch.setattr(registry, "plugins", lambda: plugins)
    monkeypatch.setattr(registry, "actions", lambda: actions)
    monkeypatch.setattr(policy, "misfits", lambda *_: ())  # these plugins do nothing


def _defaults() -> list[str]:
    return [entry["name"] for tier in yaml.safe_load(DEFAULT_POLICY)["tiers"] for entry in tier["plugins"]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "volcano-scheduler.conf"


def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(conf, [str(argument) for argument in arguments], input=stdin)


def test_check_of_a_good_file_exits_with_0(file: Path) -> None:
    file.write_text(GOOD)
    assert run("check", file).exit_code == 0


def test_check_of_a_bad_file_exits_with_1(file: Path) -> None:
    file.write_text(BAD)
    assert run("check", file).exit_code == 1


def test_check_of_a_missing_file_exits_with_2(file: Path) -> None:
    assert run("check", file).exit_code == 2


def test_check_of_a_missing_file_says_so(file: Path) -> None:
    assert run("check", file).stderr == f"Error: {file}: No such file or directory\n"


def test_check_of_a_folder_exits_with_2(tmp_path: Path) -> None:
    assert run("check", tmp_path).exit_code == 2


def test_check_of_a_file_that_is_no_text_says_so(file: Path) -> None:
    file.write_bytes(b"actions: \xff")
    assert run("check", file).stderr == f"Error: {file}: not UTF-8 at byte 9\n"


def test_check_prints_each_problem_with_its_line(file: Path) -> None:
    file.write_text(BAD)
    assert run("check", file).stdout.splitlines() == [
        f'{file}:1: error: actions: "allocat": there is no action allocat; did you mean allocate?',
        f'{file}:8: error: tiers[0].plugins[1].arguments.binpack.weight: "-1": must be an integer of at least 0',
        f"{file}: cannot be used (errors: 2, warnings: 0)",
    ]


def test_check_prints_warnings(file: Path) -> None:
    file.write_text(WARNED)
    assert run("check", file).stdout.splitlines() == [
        f"{file}:9: warning: tiers[0].plugins[1]: enableVictim is not read; Volcano spells it enabledVictim",
        f"{file}: can be used (errors: 0, warnings: 1)",
    ]


def test_check_of_a_file_with_warnings_exits_with_0(file: Path) -> None:
    file.write_text(WARNED)
    assert run("check", file).exit_code == 0


def test_check_reads_standard_input() -> None:
    assert run("check", "-", stdin=BAD).exit_code == 1


def test_check_as_json(file: Path) -> None:
    file.write_text("actions: allocat\ntiers: [{plugins: [{name: gang}]}]")
    assert json.loads(run("check", file, "-o", "json").stdout) == {
        "apiVersion": "vcd/v1",
        "kind": "ConfigurationCheck",
        "file": str(file),
        "usable": False,
        "problems": [
            {
                "line": 1,
                "key": "actions",
                "value": "allocat",
                "message": "there is no action allocat; did you mean allocate?",
            }
        ],
        "warnings": [],
        "unread_queue_fields": {},
        "queues": [],
    }


class Shares(Plugin):
    """A queue plugin, of which one field is read with a flag only."""

    name = "shares"
    queue_fields = ("weight", "parent?enableHierarchy")


class Amounts(Plugin):
    """Another queue plugin."""

    name = "amounts"
    queue_fields = ("deserved", "parent?enableHierarchy")


@pytest.fixture
def with_queue_plugins(monkeypatch: pytest.MonkeyPatch, known: None) -> None:
    plugins = {**registry.plugins(), "shares": Shares, "amounts": Amounts}
    monkeypatch.setattr(registry, "plugins", lambda: plugins)


def queues_of(tmp_path: Path, **spec: object) -> Path:
    queues = tmp_path / "queues.yaml"
    head = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "team"}}
    queues.write_text(yaml.safe_dump_all([{**head, "spec": spec}, {**head, "kind": "PodGroup", "spec": {}}]))
    return queues


@pytest.mark.usefixtures("with_queue_plugins")
@pytest.mark.parametrize(
    ("plugin", "unread"),
    [
        ("shares", {"deserved": ["amounts"], "parent": ["amounts", "shares"]}),
        ("amounts", {"weight": ["shares"], "parent": ["amounts", "shares"]}),
        ("amounts, enableHierarchy: true", {"weight": ["shares"]}),
        ("gang", {"deserved": ["amounts"], "parent": ["amounts", "shares"], "weight": ["shares"]}),
    ],
)
def test_check_names_queue_fields_that_no_plugin_reads(file: Path, plugin: str, unread: dict[str, list[str]]) -> None:
    file.write_text(f"actions: allocate\ntiers: [{{plugins: [{{name: {plugin}}}]}}]")
    lines = run("check", file).stdout.splitlines()
    words = [f"{file}: spec.{field} of queues is not read; {' and '.join(by)} would" for field, by in unread.items()]
    assert sorted(line.removesuffix(" read it") for line in lines[1:]) == sorted(words)
    assert json.loads(run("check", file, "-o", "json").stdout)["unread_queue_fields"] == unread


@pytest.mark.usefixtures("with_queue_plugins")
def test_check_names_what_given_queues_state_in_vain(file: Path, tmp_path: Path) -> None:
    file.write_text("actions: allocate\ntiers: [{plugins: [{name: shares}]}]")
    queues = queues_of(tmp_path, weight=3, parent="root", deserved={"cpu": "4"})
    checked = run("check", file, "-f", queues)
    sentence = "queue team: spec.deserved has no effect: no plugin that is on reads it; amounts would"
    assert checked.exit_code == 0
    assert [line for line in checked.stdout.splitlines() if "warning: " in line] == [f"{file}: warning: {sentence}"]
    assert json.loads(run("check", file, "-f", queues, "-o", "json").stdout)["queues"] == [sentence]


@pytest.mark.usefixtures("with_queue_plugins")
def test_check_of_a_queue_that_cannot_be_read_exits_with_1(file: Path, tmp_path: Path) -> None:
    file.write_text("actions: allocate\ntiers: [{plugins: [{name: shares}]}]")
    checked = run("check", file, "-f", queues_of(tmp_path, weight="many"))
    assert (checked.exit_code, checked.stderr.startswith("refused: Queue ")) == (1, True)


def test_broken_installation_is_told_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise registry.RegistryError("entry point mine = my.plugin:Mine: it does not load")

    monkeypatch.setattr(registry, "plugins", broken)
    assert run("show").stderr == "Error: entry point mine = my.plugin:Mine: it does not load\n"


def test_show_without_a_file_is_the_compiled_in_default() -> None:
    described = json.loads(run("show", "-o", "json").stdout)
    assert [plugin["name"] for tier in described["tiers"] for plugin in tier] == _defaults()


def test_show_as_json_marks_defaults(file: Path) -> None:
    file.write_text(GOOD)
    described = json.loads(run("show", file, "-o", "json").stdout)
    assert described["tiers"][0][1]["arguments"] == {
        "binpack.weight": {"value": 10, "default": False},
        "binpack.cpu": {"value": 3, "default": True},
    }


def test_show_as_yaml_is_the_same_data_as_json(file: Path) -> None:
    file.write_text(GOOD)
    assert yaml.safe_load(run("show", file, "-o", "yaml").stdout) == json.loads(run("show", file, "-o", "json").stdout)


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def test_show_prints_flags_that_differ_from_the_default(file: Path) -> None:
    file.write_text(GOOD)
    rows = [cells(line) for line in run("show", file).stdout.splitlines()]
    assert ["1", "gang", "enablePreemptable: false"] in rows


def test_show_prints_where_an_argument_is_from(file: Path) -> None:
    file.write_text(GOOD)
    rows = [cells(line) for line in run("show", file).stdout.splitlines()]
    assert [row[-3:] for row in rows if row[-1] in ("file", "default")] == [
        ["binpack.weight", "10", "file"],
        ["binpack.cpu", "3", "default"],
        ["predicateErrorCacheEnable", "true", "default"],
    ]


def test_show_prints_warnings_apart(file: Path) -> None:
    file.write_text(WARNED)
    assert run("show", file).stderr.startswith(f"{file}:9: warning: ")


def test_show_of_a_bad_file_exits_with_1(file: Path) -> None:
    file.write_text(BAD)
    assert run("show", file).exit_code == 1


def test_show_of_a_bad_file_prints_the_problems(file: Path) -> None:
    file.write_text(BAD)
    assert run("show", file).stderr.startswith(f"{file}:1: error: actions: ")


def test_show_of_a_missing_file_exits_with_2(file: Path) -> None:
    assert run("show", file).exit_code == 2


def test_show_tells_the_version_in_force_in_a_log(tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    text = DEFAULT_POLICY.replace("enqueue, allocate, backfill", "enqueue, allocate")

    async def write() -> None:
        async with EventLog.open(path) as log:
            for loaded in (DEFAULT_POLICY, text):
                await log.append([PolicyLoaded(read_policy(loaded).digest, loaded)])

    asyncio.run(write())
    result = CliRunner().invoke(conf, ["show", "--event-log", str(path), "-o", "json"])
    assert result.exit_code == 0
    assert [action["name"] for action in json.loads(result.stdout)["actions"]] == ["enqueue", "allocate"]


def test_a_file_and_a_log_are_two_configurations(file: Path) -> None:
    file.write_text(GOOD)
    for option in (("--event-log", "none.sqlite"), ("--from-cluster",)):
        result = run("show", file, *option)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "FILE and a log are two configurations; give one of them" in result.stderr


def test_a_file_goes_before_a_log_that_is_not_asked_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(GOOD)
    monkeypatch.setenv("VCD_EVENT_LOG", "none.sqlite")
    for program, words in ((conf, ("show",)), (kubectl_vcd, ("conf", "show"))):
        result = CliRunner().invoke(program, [*words, str(file)])
        assert (result.exit_code, result.stdout.startswith(str(file))) == (0, True), result.output


def test_a_missing_log_is_a_clear_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(conf, ["show", "--event-log", str(tmp_path / "none.sqlite")])
    assert result.exit_code == 2
    assert "none.sqlite" in result.stderr


def test_rbac_lets_read_what_the_plugins_declare_and_no_more(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Kind("Rack", "example.com", "v1", "racks", False, Object)
    part = Kind("Notes", "", "v1", "configmaps", True, Object, "ops", "<binpack.notes>", manifest="ConfigMap")
    monkeypatch.setattr(Binpack, "kinds", (whole, part))
    monkeypatch.setattr(
        Binpack, "arguments", (*Binpack.arguments, Argument("binpack.notes", "str", "notes", "A ConfigMap."))
    )
    file.write_text(GOOD + "      binpack.notes: mine\n")
    result = run("rbac", file, "--service-account", "me", "--namespace", "here")
    assert result.exit_code == 0
    found = grants(yaml.safe_load_all(result.stdout), "me", "here")
    always = {Grant(verb, KINDS[name].group, KINDS[name].plural, "", "") for name in ALWAYS_READ for verb in READ}
    assert found == {
        *always,
        *(Grant(verb, "example.com", "racks", "", "") for verb in READ),
        *(Grant(verb, "", "configmaps", "ops", "mine") for verb in READ),
    }


def test_rbac_of_a_bad_file_exits_with_1(file: Path) -> None:
    file.write_text(BAD)
    assert run("rbac", file).exit_code == 1
