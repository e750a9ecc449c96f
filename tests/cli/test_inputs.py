"""Reading manifests: errors name file, document and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.model.oddities import MANIFESTS, ODD_JSON, WORKLOADS, Manifest, mutated
from tests.model.test_yamltext import bomb
from tests.sizes import examples
from vcd.cli.command_errors import Unusable
from vcd.cli.inputs import read_manifests

QUEUE = "kind: Queue\nmetadata: {name: q}\n"


def write(tmp_path: Path, text: str | bytes, name: str = "file.yaml") -> str:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (QUEUE + "---\nmetadata: {name: q}\n", "document 2 (line 4): it has no kind"),
        (QUEUE + "---\n\n- a\n", "document 2 (line 5): an object must be a mapping, not a list"),
        ("just words", "document 1 (line 1): an object must be a mapping, not a text"),
        ("kind: Pod\n", "document 1 (line 1): the Pod has no metadata.name"),
        ("kind: Pod\nmetadata: [name]\n", "document 1 (line 1): the Pod has no metadata.name"),
        ("kind: List\nitems:\n- 7\n", "document 1 (line 1): items[0]: an object must be a mapping, not a number"),
        ("kind: List\nitems:\n- metadata: {name: a}\n", "document 1 (line 1): items[0]: it has no kind"),
        ("kind: PodList\nitems: [{metadata: {}}]\n", "document 1 (line 1): items[0]: the Pod has no metadata.name"),
        ('{"kind": "Pod", "metadata": {"name": "a"}}\n{"kind": "Pod"}', "document 2 (line 2): the Pod has no"),
        ("[1, 2]", "document 1 (line 1): an object must be a mapping, not a list"),
    ],
)
def test_what_is_no_object_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(Unusable) as caught:
        read_manifests([file])
    assert caught.value.message.startswith(f"{file}: {message}")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (QUEUE + "---\nkind: Queue\nmetadata: {name: q\n", "document 2 (line 6)"),
        (QUEUE + "---\nkind: Queue\n\tmetadata: 1\n", "document 2 (line 5)"),
        ('{"kind": "Pod",\n"metadata" {"name": "a"}}', "document 1 (line 2)"),
        ("kind: !!python/object:os.system Queue\n", "document 1 (line 1)"),
    ],
)
def test_what_is_no_yaml_is_named_with_its_line(tmp_path: Path, text: str, where: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(Unusable) as caught:
        read_manifests([file])
    assert caught.value.message.startswith(f"{file}: {where}: neither YAML nor JSON: ")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=r"none\.yaml: No such file or directory"):
        read_manifests([str(tmp_path / "none.yaml")])


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="not UTF-8 at byte 6"):
        read_manifests([write(tmp_path, b"kind: \xff")])


def test_a_folder_without_manifests_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=r"the folder has no file that ends in \.json, \.yaml, \.yml"):
        read_manifests([str(tmp_path)])


def test_the_files_of_a_folder_are_read_in_order_and_folders_in_it_are_not(tmp_path: Path) -> None:
    write(tmp_path, QUEUE.replace("q", "b"), "2.yaml")
    write(tmp_path, QUEUE.replace("q", "a"), "1.yml")
    (tmp_path / "deeper").mkdir()
    write(tmp_path / "deeper", "no manifest")
    assert [one["metadata"]["name"] for one in read_manifests([str(tmp_path)])] == ["a", "b"]


def test_times_stay_texts(tmp_path: Path) -> None:
    file = write(tmp_path, "kind: Pod\nmetadata: {name: a, creationTimestamp: 2026-01-01T00:00:00Z}\n")
    assert read_manifests([file])[0]["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"


def test_there_are_no_numbers_to_base_60(tmp_path: Path) -> None:
    file = write(tmp_path, "kind: Pod\nmetadata: {name: a, labels: {at: 10:30, n: 12, f: 1.5}}\n")
    assert read_manifests([file])[0]["metadata"]["labels"] == {"at": "10:30", "n": 12, "f": 1.5}


def test_items_of_a_typed_list_have_its_kind(tmp_path: Path) -> None:
    file = write(tmp_path, "kind: QueueList\nitems: [{metadata: {name: a}}, {metadata: {name: b}}]\n")
    assert [(one["kind"], one["metadata"]["name"]) for one in read_manifests([file])] == [
        ("Queue", "a"),
        ("Queue", "b"),
    ]


def test_empty_documents_are_passed_over(tmp_path: Path) -> None:
    assert len(read_manifests([write(tmp_path, f"---\n---\n{QUEUE}---\n# nothing\n")])) == 1


def test_yaml_in_braces_is_yaml(tmp_path: Path) -> None:
    assert read_manifests([write(tmp_path, "{kind: Queue, metadata: {name: q}}")])[0]["kind"] == "Queue"


@pytest.mark.parametrize("levels", [990, 5000, 200_000])
def test_json_nested_without_end_is_read_as_far_as_an_object_can_be_nested(tmp_path: Path, levels: int) -> None:
    path = tmp_path / "deep.json"
    fields = '{"f:a":' * levels + "1" + "}" * levels
    meta = f'{{"name":"a","managedFields":[{{"fieldsV1":{fields}}}]}}'
    path.write_text(f'{{"kind":"Pod","metadata":{meta},"spec":{{"x":1}}}}')
    (manifest,) = read_manifests([str(path)])
    assert (manifest["metadata"]["name"], manifest["spec"]) == ("a", {"x": 1})


@pytest.mark.parametrize(
    "value",
    ["{a: " * 100_000 + "1" + "}" * 100_000, "{a:\n" * 100_000 + "1" + "}" * 100_000, "- " * 100_000 + "1"],
    ids=["braces", "lines of braces", "dashes"],
)
def test_yaml_nested_without_end_is_refused_with_its_line(tmp_path: Path, value: str) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text(f"kind: Pod\nmetadata: {{name: a}}\nspec:\n  {value}\n")
    with pytest.raises(Unusable, match=r"deep.yaml: line \d+: nested more than 300 deep"):
        read_manifests([str(path)])


def test_aliases_that_stand_for_gigabytes_are_refused_with_file_and_line(tmp_path: Path) -> None:
    file = write(tmp_path, f"{QUEUE}---\nkind: Pod\nmetadata: {{name: a}}\n{bomb(9)}\n")
    with pytest.raises(Unusable, match=r"file.yaml: line \d+: aliases add more than"):
        read_manifests([file])


def test_long_lines_and_many_braces_are_no_nesting(tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text("kind: Pod\nmetadata: {name: a}\nspec: [" + ", ".join(["{a: 1}"] * 2000) + "]\n")
    assert len(read_manifests([str(path)])[0]["spec"]) == 2000


# --- what JSON cannot hold --------------------------------------------------------------------------------------------

LONG = "9" * 5000
STANDS_FOR_LONG = "a long number"
ODD_FILE = (
    *ODD_JSON, STANDS_FOR_LONG, float("nan"), float("-inf"), "\ud800", {"\udfff": 1}, {"x": STANDS_FOR_LONG},
)  # fmt: skip


def pod(spec: str) -> str:
    return f'{{"kind": "Pod", "metadata": {{"name": "a"}}, "spec": {{{spec}}}}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (pod('"x": 1') + "\n" + pod(f'"x": {LONG}'), "document 2 (line 2): a number of more than 4,300 digits; write"),
        (pod('"x": NaN'), "document 1 (line 1): Pod default/a: spec.x: nan is not a JSON number; write a finite one"),
        (pod('"x": 1e999'), "document 1 (line 1): Pod default/a: spec.x: inf is not a JSON number"),
        (pod(r'"\ud800": 1'), 'document 1 (line 1): Pod default/a: spec: a key: "\\ud800" has half a character'),
        (r'{"kind": "Node", "metadata": {"name": "\ud800"}}', "document 1 (line 1): Node (no name): metadata.name: "),
        (r'{"kind": "\ud800", "metadata": {"name": "a"}}', "document 1 (line 1): (no kind) (no name): kind: "),
        (QUEUE + "spec: {weight: .nan}\n", "document 1 (line 1): Queue q: spec.weight: nan is not a JSON number"),
        (QUEUE + f"spec: {{weight: {LONG}}}\n", "document 1 (line 1): neither YAML nor JSON: a number of more than"),
        (QUEUE + f"spec: {{weight: 0x{LONG}}}\n", "document 1 (line 1): Queue q: spec.weight: a number of more than"),
        (
            QUEUE + "spec: {on: 1}\n",
            "document 1 (line 1): Queue q: spec: a key must be a text, not bool; write it in quotes",
        ),
        (QUEUE + "spec: &all {x: *all}\n", "document 1 (line 1): Queue q: spec.x.x"),
        (
            "kind: QueueList\nitems: [{metadata: {name: 7}, spec: .inf}]",
            "document 1 (line 1): items[0]: Queue (no name)",
        ),
    ],
)
def test_what_json_cannot_hold_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(Unusable) as caught:
        read_manifests([file])
    assert caught.value.message.startswith(f"{file}: {message}")
    caught.value.message.encode()


def test_keys_that_are_numbers_are_texts(tmp_path: Path) -> None:
    file = write(tmp_path, "kind: Deployment\nmetadata: {name: a, annotations: {3: b}}\n")
    assert read_manifests([file])[0]["metadata"]["annotations"] == {"3": "b"}


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.sampled_from([*MANIFESTS, *WORKLOADS]), st.integers(0, 2**32))
def test_a_file_changed_at_random_is_refused_or_holds_json(tmp_path: Path, manifest: Manifest, seed: int) -> None:
    file = write(tmp_path, json.dumps(mutated(manifest, seed, ODD_FILE)).replace(f'"{STANDS_FOR_LONG}"', LONG))
    try:
        (found,) = read_manifests([file])
    except Unusable as error:
        error.message.encode()
        return
    json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
