"""Generates the table of values in the chart's README.md, and copies custom resources and admission policies into it.

The table comes from values.yaml, where the comment before a value is its description. The custom resources are the ones
that the kustomization in vcd/embedded/crds lists, the admission policies are those of components/validation.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CHART = Path(__file__).resolve().parent / "vcd"
CRDS = CHART.parents[2] / "vcd" / "embedded" / "crds"
POLICIES = CHART.parents[1] / "components" / "validation" / "policies.yaml"
BEGIN, END = "<!-- begin: values -->", "<!-- end: values -->"


class Value(NamedTuple):
    """A value of the chart: its path with dots, its default, and its description."""

    path: str
    default: Any
    meaning: str


def documented(text: str) -> Iterator[Value]:
    """Yield the values of a values.yaml that have a comment directly before them, in order."""
    defaults = yaml.safe_load(text)
    comment: list[str] = []
    path: list[str] = []
    block = -1
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if block >= 0 and (indent > block or not line):
            continue
        block = -1
        if line.lstrip().startswith("#"):
            comment.append(line.strip(" #"))
        elif found := re.match(r" *([A-Za-z][\w]*):(.*)$", line):
            path[indent // 2 :] = [found[1]]
            if found[2].strip() == "|":
                block = indent
            if comment:
                yield Value(".".join(path), at(defaults, path), " ".join(comment))
            comment = []
        else:
            comment = []


def at(values: Any, path: list[str]) -> Any:
    """Return the value at a path."""
    for name in path:
        values = values[name]
    return values


def undocumented(values: dict[str, Any], known: set[str], path: str = "") -> Iterator[str]:
    """Yield the paths of values without a description, except those below or above one that has it."""
    for name, value in values.items():
        here = f"{path}.{name}" if path else name
        if here in known:
            continue
        if isinstance(value, dict) and value:
            yield from undocumented(value, known, here)
        else:
            yield here


def table(text: str) -> str:
    """Return the values as a Markdown table."""
    lines = ["| value | default | meaning |", "| --- | --- | --- |"]
    for value in documented(text):
        long = isinstance(value.default, str) and "\n" in value.default
        default = "in values.yaml" if long else f"`{json.dumps(value.default)}`"
        meaning = value.meaning.replace("|", "\\|")
        lines.append(f"| `{value.path}` | {default} | {meaning} |")
    return "\n".join(lines)


def with_table(readme: str, text: str) -> str:
    """Return a README with the table of values between its two marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(text)}\n\n{END}{after}"


def main() -> int:
    text = (CHART / "values.yaml").read_text()
    if forgotten := list(undocumented(yaml.safe_load(text), {value.path for value in documented(text)})):
        print(f"values.yaml: no comment before {', '.join(forgotten)}", file=sys.stderr)  # noqa: T201
        return 1
    readme = CHART / "README.md"
    readme.write_text(with_table(readme.read_text(), text))
    folder = CHART / "charts" / "crds" / "crds"
    for path in folder.glob("*.yaml"):
        path.unlink()
    for name in yaml.safe_load((CRDS / "Kustomization").read_text())["resources"]:
        (folder / name).write_bytes((CRDS / name).read_bytes())
    (CHART / "files" / "validation.yaml").write_bytes(POLICIES.read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
