"""What commands print with ``-o json`` is what the schemas in docs/schemas say, and nothing beside it."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from tests import dsl
from tests.timetravel.histories import scheduler, write_busy_history
from tests.timetravel.plays import CONF, Work, play
from tests.timetravel.shadowed import shadow, write_shadow_history
from tests.timetravel.test_bisect import starved
from tests.timetravel.test_eviction_explanation import CONF as EVICTING
from tests.timetravel.test_eviction_explanation import reclaimed
from vcd.cli import main
from vcd.cli.printing import API_VERSION
from vcd.cli.schemas import documents, schema_of
from vcd.eventlog.archive.shipping import ShipJob, ship
from vcd.timetravel.whatif.submission_forecast import eta

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"
GANG = "examples/gang.yaml"

ASKED: dict[str, list[str]] = {
    "bisect job": ["job bert --event-log starved.log"],
    "bisect waits": ["waits --event-log starved.log"],
    "conf check": ["check good.conf", "check bad.conf"],
    "conf diff": ["diff good.conf good.conf", "diff good.conf other.conf"],
    "conf show": ["show", "show good.conf"],
    "explain changes": ["changes --event-log busy.log", "changes --around large --event-log busy.log"],
    "explain cluster": ["cluster --event-log busy.log", "cluster --event-log busy.log --change"],
    "explain diff": ["diff large third --event-log busy.log"],
    "explain eviction": ["eviction x-1 --event-log evicting.log"],
    "explain job": [
        "job large --event-log busy.log",
        "job large --event-log busy.log --session 7 --change --eta",
        "job new --event-log evicting.log",
    ],
    "explain order": ["order --event-log busy.log --session 7"],
    "explain pod": ["pod large-0 --event-log busy.log"],
    "explain queue": ["queue small --event-log busy.log", "queue a --event-log evicting.log"],
    "explain session": [f"session {number} --event-log busy.log" for number in (1, 3, 8)],
    "jobs": ["--event-log busy.log", "--event-log busy.log --state waiting"],
    "gate": ["--event-log played.log --new good.conf --seeds 1 --jobs 1 --fail-if wait.max>+900%"],
    "log compact": ["compact compacted.log --max-age 1s"],
    "log export": ["export busy.log exported.log --from 2", "export busy.log nameless.log --anonymise"],
    "log ls": ["ls busy.log --limit 0"],
    "log ls --sessions": ["ls busy.log --sessions"],
    "log restore": ["restore archive restored.log"],
    "log restore --check": ["restore archive --check"],
    "log tail": ["tail busy.log"],
    "log verify": ["verify busy.log"],
    "plan": ["-f gang.yaml"],
    "replay": ["--event-log busy.log --jobs 1"],
    "shadow": ["shadow.log --limit 0", "evicting-shadow.log"],
    "sim": ["--workload gang.yaml --exit-when-idle --event-log sim.log"],
    "sweep": ["--event-log played.log --jobs 1"],
    "top": ["--event-log busy.log"],
    "whatif": ["--event-log played.log --set node/n.status.allocatable.cpu=4"],
    "whatif --submit": [
        "--event-log played.log --submit job.yaml",
        "--event-log played.log --submit job.yaml --run 9s",
    ],
}
"""What is tried of each document: the words of the command after its first one."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs and files that the commands name."""
    path = tmp_path_factory.mktemp("documents")
    asyncio.run(_write(path))
    (path / "gang.yaml").write_text((SCHEMAS.parents[1] / GANG).read_text())
    (path / "job.yaml").write_text(yaml.safe_dump_all(dsl.gang("asked", 1, cpu=2)))
    (path / "good.conf").write_text(CONF)
    (path / "other.conf").write_text(CONF.replace("allocate", "allocate, backfill", 1))
    (path / "bad.conf").write_text("actions: allocat\ntiers: [{plugins: [{name: gnag}]}]\n")
    return path


async def _write(path: Path) -> None:
    await write_busy_history(path / "busy.log")
    await write_busy_history(path / "compacted.log")
    await asyncio.to_thread(_ship, path / "busy.log", path / "archive")
    await starved(path / "starved.log")
    await write_shadow_history(path / "shadow.log")
    async with shadow(path / "evicting-shadow.log", EVICTING) as made:
        await reclaimed(made)
    await play(
        path / "played.log", [dsl.node("n", cpu=2)], [Work("a", 0, 30, cpu=2), Work("b", 9, 20, cpu=2)], seconds=55
    )
    async with scheduler(path / "evicting.log", EVICTING) as made:
        await made.carry_out(await reclaimed(made))


def _ship(log: Path, archive: Path) -> None:
    archive.mkdir()
    ship(ShipJob(str(log), str(archive), "test", 1), lambda _: None)


def printed(folder: Path, words: str) -> list[Any]:
    """The documents that a command prints; of those that print one a line, all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        # more runs make no other document
        patch.setattr("vcd.cli.explain.forecast_start", functools.partial(eta, samples=1))
        result = CliRunner().invoke(main, [*words.split(), "-o", "json"])
    assert result.exit_code in (0, 1), (words, result.output, result.exception)
    try:
        return [json.loads(result.stdout)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in result.stdout.splitlines()]


def closed(schema: Any) -> Any:
    """A schema in which objects whose fields are listed have no others, so that none is missing in it."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    only = {"additionalProperties": False} if "properties" in schema else {}
    return {key: closed(value) for key, value in schema.items()} | only


@pytest.mark.parametrize("name", sorted(ASKED))
def test_what_is_printed_is_what_the_schema_says(folder: Path, name: str) -> None:
    kind = documents()[name].__name__
    schema = json.loads((SCHEMAS / f"{kind}.json").read_text())
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(closed(schema))
    command = name.split()[0]
    for words in ASKED[name]:
        found = printed(folder, f"{command} {words}")
        assert found, words
        for document in found:
            assert (document["apiVersion"], document["kind"]) == (API_VERSION, kind)
            assert [error.message for error in validator.iter_errors(document)] == [], words


@pytest.mark.parametrize("kind", sorted(set(documents().values()), key=lambda kind: kind.__name__))
def test_a_schema_is_the_one_of_what_is_printed_now(kind: type[msgspec.Struct]) -> None:
    """Also of what no command that is tried prints: a field that is missing in it is one that nobody promised."""
    written = json.loads((SCHEMAS / f"{kind.__name__}.json").read_text())
    assert written == json.loads(json.dumps(schema_of(kind))), "run docs/generate.py"


def used(schema: Any, parts: Mapping[str, Any], value: Any) -> Iterator[str]:
    """The parts of a schema that a value has in it."""
    if not isinstance(schema, Mapping):
        return
    for one in schema.get("anyOf", ()):
        yield from used(one, parts, value)
    name = schema.get("$ref", "").rpartition("/")[2]
    if name and Draft202012Validator({**schema, "$defs": parts}).is_valid(value):
        yield name
        yield from used(parts[name], parts, value)
    if isinstance(value, list):
        for one in value:
            yield from used(schema.get("items", {}), parts, one)
    elif isinstance(value, dict):
        for key, one in value.items():
            of_rest = schema.get("additionalProperties")
            yield from used(schema.get("properties", {}).get(key, of_rest or {}), parts, one)


@pytest.mark.parametrize("name", ["explain eviction", "explain order", "shadow"])
def test_all_that_a_document_holds_is_tried(folder: Path, name: str) -> None:
    schema = json.loads((SCHEMAS / f"{documents()[name].__name__}.json").read_text())
    parts = schema.get("$defs", {})
    command = name.split()[0]
    found = {
        part
        for words in ASKED[name]
        for document in printed(folder, f"{command} {words}")
        for part in used(schema, parts, document)
    }
    assert found == parts.keys()


def test_a_document_that_is_none_is_refused(folder: Path) -> None:
    schema = closed(json.loads((SCHEMAS / "JobExplanation.json").read_text()))
    (found,) = printed(folder, "explain job large --event-log busy.log")
    for broken in ({"kind": "Plan"}, {"episodes": 1}, {"unheard": 1}):
        assert list(Draft202012Validator(schema).iter_errors({**found, **broken}))


def commands(group: click.Group, before: str = "") -> Iterator[str]:
    """The commands that print JSON, with the names of the groups that they are in."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")
        elif any(isinstance(one.type, click.Choice) and "json" in one.type.choices for one in command.params):
            yield before + name


def test_every_command_that_prints_json_is_listed_and_tried() -> None:
    assert set(ASKED) == set(documents())
    kinds = {name: name.partition(" ")[0] if name.startswith("explain") else name for name in documents()}
    assert set(commands(main)) <= set(kinds.values())
