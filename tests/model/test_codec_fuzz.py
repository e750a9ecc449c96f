"""Whatever bytes come in, the answer is an object or a BadObject that names it, and the state takes either."""

from __future__ import annotations

import contextlib
import json
import re
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.oddities import MANIFESTS, ODD_JSON, WORKLOADS, Manifest, mutated
from tests.sizes import examples
from vcd.model import jsontext, projection_codec
from vcd.model.events import (
    ObjectBad,
    ObjectPut,
    OperationDone,
    Plan,
    PolicyLoaded,
    SessionDecided,
    Statement,
    decode_event,
    encode_event,
    encode_plan,
)
from vcd.model.kinds import KINDS
from vcd.model.manifests import flatten
from vcd.state.cluster_state import ClusterState

SEEDS = st.integers(0, 2**32)
POD = b'{"metadata":{"namespace":"ns","name":"a","resourceVersion":"7"%s},"spec":{"containers":[{"name":"c"}]}}'


def taken(kind: str, raw: bytes) -> ObjectPut | ObjectBad:
    """What a watcher makes of an object's text, folded into a state."""
    try:
        obj, version = projection_codec.decode_json(KINDS[kind], raw)
        event: ObjectPut | ObjectBad = ObjectPut(kind, obj.key, version, projection_codec.encode_payload(obj))
    except projection_codec.BadObject as error:
        key, version = projection_codec.identify(raw)
        event = ObjectBad(kind, key, version, str(error))
    state = ClusterState()
    state.apply(1, event)
    assert ClusterState.load(state.dump()).dump() == state.dump()
    msgspec.json.encode(event)  # a log holds no other texts than these
    return event


@given(st.binary(max_size=400), st.sampled_from(sorted(KINDS)))
def test_bytes_at_random_are_a_bad_object_at_worst(raw: bytes, kind: str) -> None:
    taken(kind, raw)


@given(st.sampled_from(MANIFESTS), st.data())
def test_bytes_changed_at_random_are_a_bad_object_at_worst(manifest: Manifest, data: st.DataObject) -> None:
    raw = bytearray(msgspec.json.encode(manifest))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    taken(manifest["kind"], bytes(raw))


@given(st.sampled_from(MANIFESTS), SEEDS)
def test_members_changed_at_random_are_a_bad_object_at_worst_and_it_is_named(manifest: Manifest, seed: int) -> None:
    changed = mutated(manifest, seed, ODD_JSON)
    event = taken(manifest["kind"], msgspec.json.encode(changed))
    if changed.get("metadata") == manifest["metadata"]:
        meta = manifest["metadata"]
        assert event.key == (f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"])


@pytest.mark.parametrize("levels", [100, 900, 985, 990, 1000, 5000, 100_000])
@pytest.mark.parametrize("odd", [b"{}", b"1" * 5000, b"1e999", b'"\\ud800"', b'"\xff"'], ids=range(5))
def test_managed_fields_are_passed_over_however_deep_and_odd(levels: int, odd: bytes) -> None:
    fields = b',"managedFields":[{"fieldsV1":' + b'{"f:a":' * levels + odd + b"}" * levels + b"}]"
    event = taken("Pod", POD % fields)
    assert isinstance(event, ObjectPut)
    assert event == taken("Pod", POD % b"")


@pytest.mark.parametrize("levels", [200, 2000])
def test_a_field_that_is_read_and_nested_without_end_is_told_of(levels: int) -> None:
    deep = b'{"a":' * levels + b"{}" + b"}" * levels
    event = taken("Pod", POD % (b',"labels":' + deep))
    assert isinstance(event, ObjectBad)
    assert (event.key, event.resource_version) == ("ns/a", "7")
    assert "labels" in event.message


@pytest.mark.parametrize("name", [b"", b',"name":""', b',"name":null', b',"name":7', b',"name":["a"]'])
def test_an_object_without_a_name_is_none(name: bytes) -> None:
    raw = b'{"metadata":{"namespace":"ns"%s}}' % name
    assert isinstance(taken("Pod", raw), ObjectBad)
    with pytest.raises(projection_codec.BadObject, match="name"):
        projection_codec.decode_json(KINDS["Pod"], raw)


@pytest.mark.parametrize("digits", [b"9223372036854775808", b"1" * 20, b"1" * 30, b"-1" + b"0" * 30, b"1" * 5000])
def test_a_number_of_more_than_64_bits_is_a_bad_object_that_is_named(digits: bytes) -> None:
    raw = POD.replace(b'"name":"c"', b'"resources":{"requests":{"cpu":%s}}' % digits) % b""
    event = taken("Pod", raw)
    assert event.key == "ns/a"
    assert isinstance(event, ObjectBad) == (len(digits) > 20)


@given(st.sampled_from(MANIFESTS), SEEDS)
def test_a_manifest_changed_at_random_is_a_bad_object_at_worst(manifest: Manifest, seed: int) -> None:
    try:
        kind, obj, _ = projection_codec.from_manifest(mutated(manifest, seed))
        projection_codec.encode_payload(obj)
    except projection_codec.BadObject:
        return
    assert kind == manifest["kind"]
    assert obj.metadata.name


@settings(max_examples=examples(500))
@given(st.sampled_from([*MANIFESTS, *WORKLOADS]), SEEDS)
def test_what_is_taken_of_a_manifest_changed_at_random_is_json_and_holds_all_of_it(
    manifest: Manifest, seed: int
) -> None:
    changed = mutated(manifest, seed)
    try:
        (taken,) = flatten([changed])
    except projection_codec.BadObject as error:
        str(error).encode()
        return
    text = json.dumps(taken, allow_nan=False, ensure_ascii=False)
    assert json.loads(text.encode()) == taken
    assert not re.search("NaN|Infinity", json.dumps(changed, default=str, skipkeys=True))


EVENTS = [
    ObjectBad("Pod", "ns/a", "7", "no"),
    PolicyLoaded("d", "actions: allocate", {"a": "b"}),
    OperationDone(1, 2, 3, "failed", "why"),
    SessionDecided(1, 2, "d", 4, 5, 6, {}, encode_plan(Plan((Statement("g", "allocate", ()),)))),
]


@given(st.sampled_from(EVENTS), st.data())
def test_rows_of_a_log_changed_at_random_are_no_events_at_worst(event: Any, data: st.DataObject) -> None:
    raw = bytearray(encode_event(event))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with contextlib.suppress(msgspec.MsgspecError):
        decode_event(bytes(raw))


@pytest.mark.parametrize("odd", [b"\xa3\xff\xff\xff", b"\x91" * 100_000, b"\x81\xa1x" * 100_000], ids=range(3))
def test_a_row_of_odd_bytes_is_neither_an_object_nor_an_event(odd: bytes) -> None:
    with pytest.raises(projection_codec.BadObject):
        projection_codec.decode_payload("Pod", b"\x81\xa8metadata\x81\xa4name" + odd)
    with pytest.raises(msgspec.MsgspecError):
        decode_event(b"\x81\xa5event" + odd)


# --- texts taken apart ------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON, max_size=6), st.sampled_from([b"", b" ", b"\n\t"]))
def test_the_members_of_an_object_are_those_that_a_parser_finds(value: dict[str, Any], space: bytes) -> None:
    raw = space + msgspec.json.format(msgspec.json.encode(value), indent=len(space) - 1) + space
    found = jsontext.members(raw)
    assert {key: msgspec.json.decode(text) for key, text in found.items()} == value
    assert jsontext.elements(raw) == []


@given(st.lists(JSON, max_size=6))
def test_the_elements_of_an_array_are_those_that_a_parser_finds(value: list[Any]) -> None:
    raw = msgspec.json.encode(value)
    assert [msgspec.json.decode(text) for text in jsontext.elements(raw)] == value
    assert jsontext.members(raw) == {}


@given(JSON)
def test_a_text_that_is_not_deep_stays_as_it_is(value: Any) -> None:
    raw = msgspec.json.encode(value)
    assert jsontext.shallow(raw) == raw


def test_a_string_that_is_cut_off_takes_no_longer_the_more_escapes_it_has() -> None:
    raw = b"[" * 2000 + b'"' + b'\\"' * 50_000
    began = time.process_time()
    jsontext.shallow(raw)
    assert time.process_time() - began < 10  # of CPU time, on any machine


@pytest.mark.parametrize("cut", [b'"[[', b'"\\', b'"\\"[['])
def test_brackets_in_a_string_that_is_cut_off_are_none(cut: bytes) -> None:
    raw = b"[" * jsontext.DEPTH + cut
    assert jsontext.shallow(raw) == raw


@given(JSON, st.data())
def test_an_object_is_one_only_up_to_its_end(value: Any, data: st.DataObject) -> None:
    raw = msgspec.json.encode(value)
    assert jsontext.is_object(b" " + raw + b"\n") is isinstance(value, dict)
    end = data.draw(st.integers(0, len(raw) - 1))
    assert not jsontext.is_object(raw[:end])
    assert not jsontext.is_object(raw + b"x")


@given(st.binary(max_size=100))
def test_bytes_at_random_are_taken_apart_without_an_error(raw: bytes) -> None:
    jsontext.shallow(raw)
    assert all(value in raw for value in jsontext.members(raw).values())
    assert all(value in raw for value in jsontext.elements(raw))


@pytest.mark.parametrize("raw", [b"[1,2", b'[1,"2', b'[{"a":]},2]', b"[[1,2],"])
def test_of_an_array_that_is_cut_off_nothing_beyond_the_cut_is_made_up(raw: bytes) -> None:
    assert jsontext.elements(raw) in ([], [b"1"], [b"[1,2]"])
