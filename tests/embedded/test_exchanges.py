"""The recorded answers of a real API server, each compared with the embedded server's."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.embedded.replay import CHANGED_BY_THE_RECORDER, DATA, replay

NAMES = [entry["name"] for entry in json.loads(DATA.read_text())]


@pytest.fixture(scope="module")
def replayed() -> list[tuple[str, list[str]]]:
    return asyncio.run(replay())


@pytest.mark.parametrize("index", range(len(NAMES)), ids=[f"{index}-{name}" for index, name in enumerate(NAMES)])
def test_answers_as_recorded(replayed: list[tuple[str, list[str]]], index: int) -> None:
    name, differences = replayed[index]
    assert differences == [], name


def test_the_recorders_own_changes_are_what_they_are_said_to_be() -> None:
    entries = json.loads(DATA.read_text())
    for index, entry in enumerate(entries):
        if entry["name"] in CHANGED_BY_THE_RECORDER:
            member = CHANGED_BY_THE_RECORDER[entry["name"]]
            before, body = entries[index - 1]["response"]["body"], entry["response"]["body"]
            assert before["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"]
            assert member not in before and member in body
