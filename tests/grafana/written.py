"""What the committed dashboards and rules say: expressions, and the names of series in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

GRAFANA = Path(__file__).resolve().parents[2] / "grafana"
SHOWN = {
    path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted((GRAFANA / "dashboards").glob("*.json"))
}
RULES: list[dict[str, Any]] = [
    rule
    for path in sorted((GRAFANA / "rules").glob("*.yaml"))
    for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
MONITOR = yaml.safe_load((GRAFANA.parent / "deploy/components/servicemonitor/servicemonitor.yaml").read_text())
TARGET = {
    "namespace": "volcano-system",
    "service": "vcd-scheduler",
    "pod": "vcd-scheduler-0",
    "container": "vcd-scheduler",
    "endpoint": "metrics",
    "job": "vcd-scheduler",
}
"""The labels, beside the instance, that the Prometheus operator gives a target of deploy/'s ServiceMonitor; where an
address is a node's and no pod's, ``node``."""
RECORDED = {rule["record"] for rule in RULES if "record" in rule}

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_LABELS = re.compile(r"\{[^{}]*\}|\b(?:by|on|without|ignoring)\s*\([^()]*\)|\[[^\]]*\]")
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_:]*(?!\w|\s*\()")
_WORDS = {"and", "or", "unless", "bool", "offset"}


@dataclass(frozen=True)
class Asked:
    """An expression and where it is written."""

    where: str
    expr: str


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """A dashboard's panels, without its rows."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def targets() -> Iterator[Asked]:
    """Every panel's expressions."""
    for name, board in SHOWN.items():
        for panel in panels(board):
            for target in panel["targets"]:
                yield Asked(f"{name}: {panel['title']} {target['refId']}", target["expr"])


def rules() -> Iterator[Asked]:
    """Every rule's expression."""
    for rule in RULES:
        yield Asked(rule.get("alert") or rule["record"], rule["expr"])


def names(expr: str) -> set[str]:
    """The series that an expression asks for."""
    return set(_NAME.findall(_LABELS.sub("", _TEXT.sub('""', expr)))) - _WORDS
