"""A log to give away: nothing that somebody named is in it, and it decides and explains the same."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests import dsl
from tests.dsl import Manifest
from tests.planted.causes import CAUSES, planted
from tests.planted.plant import Plant
from tests.planted.runs import by_hand
from tests.sizes import seeds, some
from tests.timetravel.histories import SCORED, scheduler, write_busy_history
from tests.timetravel.questions import verdict
from tests.topology.manifests import CONF, hard, hyper_node
from vcd.eventlog import LogReader
from vcd.model import events as ev
from vcd.state.backoff import RefusalBackoff
from vcd.state.checkpoint import Dump, decoded
from vcd.state.cluster_state import ClusterState
from vcd.state.records import name_bits
from vcd.timetravel import log_operations
from vcd.timetravel.anonymise.anonymised_log import _LogRewriter
from vcd.timetravel.anonymise.replacement_names import KEPT, Words, stays
from vcd.timetravel.query_errors import NotFound
from vcd.timetravel.replay import replay
from vcd.timetravel.why.verdict import Verdict

HARDWARE = ("nvidia.com", "volcano.sh/card")
"""Labels and annotations of cards, whose names stay."""


def with_secrets(plant: Plant, seed: int) -> Plant:
    """The plant with what users write into objects beside what is scheduled by."""
    dice = random.Random(f"secrets-{seed}")

    def more(manifest: Manifest) -> Manifest:
        meta = dict(manifest["metadata"])
        who = f"{dice.choice(['alice', 'bob', 'zoe'])}-{dice.randrange(1000)}"
        meta["labels"] = {
            **meta.get("labels", {}),
            "acme.example/owner": who,
            "costcentre": f"cc-{dice.randrange(10)}k",
        }
        meta["annotations"] = {**meta.get("annotations", {}), "acme.example/contact": f"{who}@acme.example"}
        spec = manifest.get("spec", {})
        if manifest["kind"] == "Pod":
            mine = {
                "image": f"registry.acme.example/{who}/train:v{dice.randrange(9)}.2-rc",
                "env": [{"name": "TOKEN", "value": f"hunter2-{who}"}],
                "command": ["python", f"/home/{who}/train.py"],
            }
            spec = {**spec, "containers": [{**container, **mine} for container in spec["containers"]]}
        return {**manifest, "metadata": meta, **({"spec": spec} if spec else {})}

    stages = [dataclasses.replace(one, put=tuple(map(more, one.put))) for one in plant.stages]
    return dataclasses.replace(plant, stages=tuple(stages))


def named_by_users(manifests: Iterable[Manifest]) -> set[str]:
    """Whatever a user chose in manifests: names, values of labels, images, environments, contacts."""
    found: set[str] = set()
    for one in manifests:
        meta = one["metadata"]
        found |= {meta["name"], meta.get("namespace", ""), meta.get("uid", "")}
        found |= {text for key, text in meta.get("labels", {}).items() if not key.startswith(HARDWARE)}
        found |= {text for key, text in meta.get("annotations", {}).items() if key.startswith("acme")}
        for container in one.get("spec", {}).get("containers", ()) if one["kind"] == "Pod" else ():
            found |= {container.get("image", ""), *(each["value"] for each in container.get("env", ()))}
            found |= set(container.get("command", ())[1:])
    return {word for word in found if not stays(word)} | {"acme", "costcentre", "alice", "hunter2"}


def texts_of(path: Path) -> Iterator[str]:
    """Every text in a log: of rows, of what is packed in them, of checkpoints; names of the code's own parts too."""
    with LogReader(path) as reader:
        for logged in reader.read(reader.oldest()):
            yield from texts_in(msgspec.to_builtins(logged.event, builtin_types=(bytes,)))
        for info in reader.checkpoints():
            yield from texts_in(msgspec.msgpack.decode(reader.base(info.sequence).state))
        for digest, text, _ in reader.rows("policies"):
            assert re.fullmatch("[0-9a-f]{128}", digest)
            yield text


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from texts_in(list(value.items()))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts_in(inner)
    elif isinstance(value, bytes) and value:
        try:
            inner = msgspec.msgpack.decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            inner = value.decode("latin-1")
        yield from (str(inner),) if isinstance(inner, int) else texts_in(inner)
    elif isinstance(value, str):
        yield value


def left_of(words: set[str], path: Path) -> set[str]:
    """Which of some words are in a log: between what no name goes on with, long ones anywhere, a letter by itself."""
    texts = set(texts_of(path))
    whole = "\n".join(texts)
    parts = set(re.split(r"[^A-Za-z0-9._-]+", whole))
    return {word for word in words if word in (parts if len(word) > 1 else texts) or (len(word) > 5 and word in whole)}


def judged(path: Path, job: str) -> Verdict | None:
    try:
        return verdict(path, job)
    except NotFound:
        return None


def same_but_for_names(one: Verdict | None, other: Verdict | None) -> bool:
    if one is None or other is None:
        return one is other
    amounts = [{(role, *sorted(of.items())) for role, of in each.amounts.items()} for each in (one, other)]
    figures = [
        (each.cause, each.since, each.waited, each.share, each.session, list(each.subject)) for each in (one, other)
    ]
    return figures[0] == figures[1] and amounts[0] == amounts[1]


def check(original: Path, out: Path, words: set[str]) -> None:
    """Sound, without the words, decided alike by this version, and explained alike."""
    assert log_operations.verify(out).problems == []
    assert left_of(words, original) != set()  # so that a miss would show
    assert left_of(words, out) == set()
    before, after = (list(replay(path)) for path in (original, out))
    assert [one.session for one in after if one.difference] == []
    assert [one.operations for one in before] == [one.operations for one in after]


def new_names(original: Path, out: Path, kind: str) -> dict[str, str]:
    """The new key of each object of a kind: events have the same numbers in both logs."""
    with LogReader(original) as one, LogReader(out) as other:
        pairs = zip(one.find(kind=kind), other.find(kind=kind), strict=True)
        return {a.event.key: b.event.key for a, b in pairs}  # type: ignore[union-attr]


ANONYMISED = (
    "selector", "node-room", "card-quota", "namespace-quota", "volume", "pod-affinity", "gated", "order",
    "pods-missing", "invalid",
)  # fmt: skip
"""Codes whose subjects name objects of every kind; a wide run anonymises the log of each code."""


@pytest.mark.parametrize("code", some(len(ANONYMISED), dict.fromkeys((*ANONYMISED, *CAUSES))))
async def test_a_planted_cause_is_found_in_the_log_without_names(code: str, tmp_path: Path) -> None:
    plant = with_secrets(planted(code, 1), 1)
    log, out = tmp_path / "log", tmp_path / "out"
    await by_hand(plant, log)
    assert log_operations.anonymise(log, out).renamed == []
    check(log, out, named_by_users(manifest for stage in plant.stages for manifest in stage.put))
    names = new_names(log, out, "PodGroup")
    for job in {plant.asked, *sorted(names)[::4]}:
        assert same_but_for_names(judged(log, job), judged(out, names[job])), job


WITHOUT_NAMES = {"sequence", "session", "epoch", "leading", "listed", "decided_at", "rounds"}
"""Fields of ``Dump`` that hold numbers, kinds and names of plugins alone."""


async def test_each_field_of_a_checkpoint_is_rewritten_or_known_to_hold_no_name(tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "log")
    with LogReader(tmp_path / "log") as reader:
        rewriting = _LogRewriter(reader)
        made: dict[str, Any] = {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("msgspec.structs.replace", lambda dump, **own: made.update(own) or dump)
            rewriting._dump(decoded(ClusterState().dump()))
    assert made.keys() | WITHOUT_NAMES == {field.name for field in msgspec.structs.fields(Dump)}
    assert not made.keys() & WITHOUT_NAMES


async def test_losses_of_groups_are_renamed(tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "log")
    dump = decoded(ClusterState().dump())
    dump.immunity = {"default/lost": ({"default/owner": ("uid-1", "uid-2")}, ("uid-1", "uid-3"), False)}
    dump.inputs = (7, {"default/owner": 5})
    with LogReader(tmp_path / "log") as reader:
        rewriting = _LogRewriter(reader)
        rewriting._dump(dump)
        rewriting._to.collecting = False
        rewriting._words.settle(set(), set())
        rewritten = rewriting._dump(dump)
        ((group, (losses, known, undisturbed)),) = rewritten.immunity.items()
    ((owner, gone),) = losses.items()
    assert (len(gone), len(known), undisturbed) == (2, 2, False)
    assert rewritten.inputs == (7, {owner: 5})
    assert len(set(gone) & set(known)) == 1
    assert not {"default/lost", "default/owner", "uid-1", "uid-2", "uid-3"} & {group, owner, *gone, *known}


async def test_back_offs_are_renamed(tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "log")
    dump = decoded(ClusterState().dump())
    dump.backoffs = {
        "default/bound-0": RefusalBackoff("uid-1", "bind", 2, 9, "no", nodes=("node-1", "node-2")),
        "default/evicted-0": RefusalBackoff("uid-2", "evict", 1, 9, "no", "default/owner"),
    }
    with LogReader(tmp_path / "log") as reader:
        rewriting = _LogRewriter(reader)
        rewriting._dump(dump)
        rewriting._to.collecting = False
        rewriting._words.settle(set(), set())
        bind, evict = rewriting._dump(dump).backoffs.values()
    assert (bind.attempts, bind.until, len(set(bind.nodes)), evict.verb) == (2, 9, 2, "evict")
    said = {*bind.nodes, bind.uid, bind.message, evict.uid, evict.message, evict.preemptor}
    assert not said & {"uid-1", "uid-2", "no", "node-1", "node-2", "default/owner"}
    assert bind.preemptor == ""


async def test_a_stretch_begins_with_a_renamed_checkpoint(tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "log")
    words = {"first-0", "second", "third", "large", "n0", "small", "docker.io/library/image"}
    for first in range(1, 9):
        log_operations.export(tmp_path / "log", tmp_path / f"plain-{first}", first, 8)
        done = log_operations.anonymise(tmp_path / "log", tmp_path / f"out-{first}", first, 8)
        assert (done.sessions, done.renamed) == (9 - first, [])
        check(tmp_path / f"plain-{first}", tmp_path / f"out-{first}", words)


@pytest.mark.parametrize("first", range(1, 9))
async def test_an_export_holds_its_sessions_and_what_they_need(tmp_path: Path, first: int) -> None:
    await write_busy_history(tmp_path / "log")
    log_operations.export(tmp_path / "log", tmp_path / "out", first, first + 1 if first < 8 else 8)
    with LogReader(tmp_path / "log") as whole, LogReader(tmp_path / "out") as part:
        (info,) = whole.sessions(first, first)
        assert [one.number for one in part.sessions()] == [*range(first, min(first + 1, 8) + 1)]
        assert part.oldest() == info.head  # nothing of before is in it but the state
        assert [one.sequence for one in part.checkpoints()][:1] == [info.head]


async def test_a_session_that_was_decided_otherwise_is_renamed(tmp_path: Path) -> None:
    def nothing(plan: ev.Plan) -> ev.Plan:
        return msgspec.structs.replace(plan, statements=())

    async with scheduler(tmp_path / "log") as made:
        await made.show(dsl.node("secret-node"), dsl.queue("root"), dsl.queue("default"))
        await made.show(dsl.gang("secret-job", 2, cpu=1, phase="Pending"))
        await made.carry_out(await made.cycle(forge=nothing))
        await made.carry_out(await made.cycle())
    assert log_operations.anonymise(tmp_path / "log", tmp_path / "out").renamed == [1]
    assert log_operations.verify(tmp_path / "out").problems == []
    assert [one.session for one in replay(tmp_path / "out") if one.difference] == [1]
    assert left_of({"secret-node", "secret-job", "secret-job-0"}, tmp_path / "out") == set()


async def anonymised_configuration(tmp_path: Path, conf: str) -> str:
    """The configuration's text in ``out``, the log without names of a session under it."""
    async with scheduler(tmp_path / "log", conf) as made:
        await made.show(dsl.node("n1"), dsl.queue("root"), dsl.queue("default"), dsl.gang("job", 1, cpu=1))
        await made.cycle()
    log_operations.anonymise(tmp_path / "log", tmp_path / "out")
    with LogReader(tmp_path / "out") as reader:
        ((_, text, _),) = reader.rows("policies")
    return str(text)


async def test_a_configuration_names_queues_by_their_new_names(tmp_path: Path) -> None:
    conf = SCORED + (
        "  - name: nodegroup\n    arguments: {strict: false}\n  - name: usage\n"
        "# asked by alice\nmetrics: {type: prometheus, address: 'http://prom.acme.example:9090'}\n"
    )
    text = await anonymised_configuration(tmp_path, conf)
    assert "acme" not in text and "alice" not in text and "http://somewhere" in text


async def test_who_measures_and_what_no_plugin_reads_is_not_told(tmp_path: Path) -> None:
    conf = SCORED + (
        "  - name: usage\n    arguments: {elasticsearch.username: alice, thresholds: {cpu: 80}}\n"
        "metrics: {type: elasticsearch, address: 'https://es.acme.example', elasticsearch.username: bob,"
        " elasticsearch.index: acme-beat, interval: 20s}\n"
    )
    text = await anonymised_configuration(tmp_path, conf)
    assert left_of({"alice", "bob", "acme", "acme-beat"}, tmp_path / "out") == set()
    assert "cpu: 80" in text and "interval: 20s" in text and "elasticsearch" in text


async def test_words_of_any_script_and_domains_that_look_like_vendors_are_renamed(tmp_path: Path) -> None:
    """A label of somebody's own domain is kept, as a pod selects by it, and under another name."""
    evil = {"nvidia.com.evil.example/owner": "zoe", "evilnvidia.com/owner": "mia", "xvolcano.sh/tier": "ute"}
    annotations = {"volcano.sh/task-topology-task-order": "müller,東京,train", "xvolcano.sh/contact": "eva"}
    async with scheduler(tmp_path / "log", SCORED) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("n1", labels=evil))
        group, pod = dsl.gang("job", 1, cpu=1, spec={"nodeSelector": evil}, annotations=annotations)
        group["metadata"].setdefault("annotations", {}).update(annotations)
        await made.show(group, pod)
        await made.carry_out(await made.cycle())
    words = {"zoe", "mia", "ute", "eva", "müller", "東京", "train", "nvidia.com.evil.example/owner", "xvolcano.sh/tier"}
    assert "müller" in "\n".join(texts_of(tmp_path / "log"))
    assert log_operations.anonymise(tmp_path / "log", tmp_path / "out").renamed == []
    assert log_operations.verify(tmp_path / "out").problems == []
    whole = "\n".join(texts_of(tmp_path / "out"))
    assert [word for word in sorted(words) if word in whole or word.encode().decode("latin-1") in whole] == []


async def test_a_hyper_node_selects_the_same_nodes_by_their_new_names(tmp_path: Path) -> None:
    member = {"type": "Node", "selector": {"regexMatch": {"pattern": "^acme-[0-9]+$"}}}
    async with scheduler(tmp_path / "log", CONF) as made:
        await made.show(dsl.queue("root"), dsl.queue("default"), dsl.node("acme-1"), dsl.node("n2"))
        await made.show(hyper_node("rack", 1, member), dsl.gang("job", 1, cpu=1, group_spec=hard(1)))
        await made.carry_out(await made.cycle())
    assert log_operations.anonymise(tmp_path / "log", tmp_path / "out").renamed == []
    check(tmp_path / "log", tmp_path / "out", {"acme-1", "^acme-[0-9]+$"})


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_new_words_compare_as_the_old_ones_did(seed: int) -> None:
    dice = random.Random(seed)
    letters = "ad3-e"
    old = {"".join(dice.choice(letters) for _ in range(dice.randrange(1, 6))).strip("-") or "x" for _ in range(200)}
    old |= set(dice.sample(sorted(KEPT), 6)) | {str(dice.randrange(100)) for _ in range(5)} | {"default-a", "roo", "s"}
    words = Words()
    for word in sorted(old):
        words.named(word, dice.choice(["node", "queue", "pod", "value"]))
    words.settle([], [])
    new = {word: words(word, "") for word in old}
    assert sorted(old) == sorted(old, key=new.__getitem__)
    assert len(set(new.values())) == len(old)
    assert all((new[word] == word) == stays(word) for word in old)


@pytest.mark.parametrize("seeds", [[0], [7], [1, 2]])
def test_seeds_order_nodes_as_before(seeds: list[int]) -> None:
    nodes = [f"gpu-{number}" for number in range(40)]
    words = Words()
    for node in nodes:
        words.named(node, "node")
    words.settle(seeds, nodes)
    new = {words(node, ""): node for node in nodes}
    for seed in (one for one in seeds if one):
        before = sorted(nodes, key=lambda node: name_bits(seed, node))
        assert [new[name] for name in sorted(new, key=lambda name: name_bits(seed, name))] == before


def test_a_pods_index_stays_at_its_end() -> None:
    words = Words()
    words.named("job-worker-12", "pod")
    words.named("job-7", "pod")
    words.settle([], [])
    assert words("job-worker-12", "").endswith("-pod-12")
    assert words("job-7", "").endswith("-pod")
