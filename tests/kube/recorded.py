"""Exchanges that were recorded with a kube-apiserver 1.36, by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.kube.scripted import Answer

_EXCHANGES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("recorded.json").read_text())


def exchange(name: str) -> dict[str, Any]:
    """One exchange, its request and its response, by its name or the start of it."""
    exact = [item for item in _EXCHANGES if item["name"] == name]
    return (exact or [item for item in _EXCHANGES if item["name"].startswith(name)])[0]


def answer(name: str) -> Answer:
    """What the server answered in an exchange."""
    response = exchange(name)["response"]
    headers = {"Retry-After": response["retryAfter"]} if "retryAfter" in response else {}
    return Answer(response["status"], response["body"], headers | {"Content-Type": response["contentType"]})


def watch_lines(name: str) -> list[bytes]:
    """The lines of a recorded watch, as bytes on the wire."""
    return [json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in exchange(name)["response"]["watch"]]
