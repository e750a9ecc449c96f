"""YAML of anybody: its cost is bounded by its length, and what is refused has a line."""

from __future__ import annotations

import pytest

from vcd.model.yamltext import YamlError, read_documents


def read(text: str) -> list[object]:
    return [document for _, document in read_documents(text)]


def bomb(levels: int) -> str:
    lines = ["a0: &a0 " + "[" + ", ".join(["x"] * 10) + "]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


MERGES = "\n".join(["a0: &a0 {k: v}", *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 40))])
LONG = f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 1000)}]"


@pytest.mark.parametrize("text", [bomb(9), bomb(200), MERGES, LONG], ids=["short", "long", "merges", "one text"])
def test_what_aliases_add_is_bounded(text: str) -> None:
    with pytest.raises(YamlError, match="aliases add more than") as caught:
        read(f"kind: Pod\n{text}")
    assert caught.value.line >= 2


def test_aliases_of_a_long_text_may_add_more() -> None:
    (found,) = read("spec: &s {a: 1, b: [c, d]}\nall:\n" + "- *s\n" * 50_000)
    assert isinstance(found, dict)
    assert len(found["all"]) == 50_000


def test_an_alias_to_what_it_lies_in_is_left_to_who_reads_it() -> None:
    (found,) = read("spec: &all {x: *all}")
    assert isinstance(found, dict)
    assert found["spec"]["x"] is found["spec"]


@pytest.mark.parametrize("piece", ["[", "{a: ", "[a, ", "[\n", "- "])
def test_nesting_without_end_is_refused_before_it_is_read_to_its_end(piece: str) -> None:
    with pytest.raises(YamlError, match="nested more than 300 deep") as caught:
        read("a:\n  " + piece * 200_000)
    assert caught.value.line <= 400
