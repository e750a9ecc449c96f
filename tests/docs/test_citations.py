"""Comments and pages cite only what a reader can open: what is in this repository, Volcano's, or Kubernetes'."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.docs.test_docs import ROOT, anchors, files

TEXTS = (".py", ".md", ".sql", ".js", ".yaml", ".toml", ".sh")
DATA = "tests/data/"
LAWS = ROOT / "docs" / "laws.md"
FOREIGN = re.compile(
    r"\bseeds? 00\d|\b00\d s\.\d|\brulings?\b|\bdesign[ ]law|\bdesign[.]md|\bdesign sections?[ ]\d"
    r"|\bpains?[.]md|\bpains? \d|\b(?:why|anchors|findings)[.]md|\(anchors\)"
)
"""Papers that the project was begun with, and that nobody else has."""
PAGE = re.compile(r"(?<![\w/.])docs/(?!design/)[\w/-]+\.md(?:#[\w-]+)?")
"""A page of docs/ by its path; docs/design/ is Volcano's."""
LAW = re.compile(r"\b[Ll]aws? (\d(?:(?:, | and |, and )\d)*)")


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Every text of the repository's own by its path, but for recorded data."""
    names = [name for name in files() if name.endswith(TEXTS) and (name.endswith(".md") or not name.startswith(DATA))]
    return tuple((name, (ROOT / name).read_text()) for name in names if "/." not in name)


def foreign(text: str) -> Iterator[str]:
    """What a text cites that is nowhere to be read, by line."""
    for number, line in enumerate(text.splitlines(), 1):
        yield from (f"{number}: {found.group()}" for found in FOREIGN.finditer(line))


def lost_pages(text: str) -> Iterator[str]:
    """Pages of docs/, and places on them, that a text names and that are not there."""
    for cited in PAGE.findall(text):
        path, _, anchor = cited.partition("#")
        page = ROOT / path
        if not page.exists() or (anchor and anchor not in anchors(page)):
            yield cited


def unknown_laws(text: str) -> Iterator[str]:
    """Laws that a text cites by a number that none has, or without saying where laws stand."""
    known = set(re.findall(r"^## (\d)\. ", LAWS.read_text(), re.MULTILINE))
    for cited in LAW.findall(text):
        numbers = set(re.findall(r"\d", cited))
        if not numbers <= known or "laws.md" not in text:
            yield cited


def test_nothing_is_cited_that_is_not_here() -> None:
    assert {name: found for name, text in texts() if (found := list(foreign(text)))} == {}


def test_pages_that_are_cited_exist() -> None:
    assert {name: found for name, text in texts() if (found := list(lost_pages(text)))} == {}


def test_laws_are_cited_by_their_number_and_by_their_page() -> None:
    others = [(name, text) for name, text in texts() if ROOT / name != LAWS]
    assert {name: found for name, text in others if (found := list(unknown_laws(text)))} == {}


def test_each_law_names_the_tests_that_keep_it() -> None:
    laws = re.split(r"^## \d\. ", LAWS.read_text(), flags=re.MULTILINE)[1:]
    assert len(laws) == 8
    assert [law.splitlines()[0] for law in laws if "`tests/" not in law] == []


@pytest.mark.parametrize(
    "text",
    ["(see" + "d 003, section 4)", "001 s" + ".4: x", "the rul" + "ings say", "(design" + " law 3)", "pains" + ".md 4"],
)
def test_a_citation_of_what_is_not_here_is_found(text: str) -> None:
    assert list(foreign(text))


@pytest.mark.parametrize("text", ["docs/" + "nothing.md", "docs/" + "laws.md#8-more"])
def test_a_page_that_is_not_there_is_found(text: str) -> None:
    assert list(lost_pages(text)) == [text]


@pytest.mark.parametrize("text", ["la" + "w 9 (docs/laws.md)", "la" + "w 3", "la" + "ws 1 and 9 (docs/laws.md)"])
def test_a_law_that_is_nowhere_to_be_read_is_found(text: str) -> None:
    assert list(unknown_laws(text))


def test_the_citations_that_are_looked_at_are_there() -> None:
    cited = {page for _, text in texts() for page in PAGE.findall(text)}
    assert {"docs/laws.md", "docs/semantics/status.md", "docs/semantics/actions.md#not-evicted-twice"} <= cited
