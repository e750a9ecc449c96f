"""Configurations out of what people have: the file itself, a ConfigMap that holds it, or the values of a Helm chart."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from vcd.cli.errors import Unusable
from vcd.cli.inputs import read_text

_LARGEST = 1 << 20
"""Characters of a file that is looked into; a ConfigMap holds as many bytes."""
_SUFFIX = ".conf"
_LIKE = re.compile(r"^(actions|tiers)[ \"']*:", re.MULTILINE)
"""Tells the scheduler's configuration from others, such as that of Volcano's webhooks."""
_VALUES = (("scheduler", "configuration"), ("custom", "scheduler_config_override"))
"""Where the values of vcd's chart, and of Volcano's, have a configuration."""


def read_configuration(name: str) -> str:
    """Return the configuration in a file, or in standard input for ``-``. Blank lines in front of one that is part of
    the file keep the numbers of its lines. Raises Unusable."""
    text = read_text(name)
    if len(text) > _LARGEST:
        return text
    found: list[str] = []
    maps: list[str] = []
    try:
        for root in yaml.compose_all(text, Loader=yaml.SafeLoader):
            for document in _listed(root):
                found.extend(_held(document))
                if _text(_child(document, "kind")) == "ConfigMap":
                    maps.append(_text(_child(_child(document, "metadata"), "name")))
    except (yaml.YAMLError, RecursionError):
        return text  # whoever reads the configuration reports what is wrong with it
    if len(found) > 1 or (maps and not found):
        names = ", ".join(maps) or "its values"
        raise Unusable(f"{name}: {len(found)} configurations in {names}; leave one with actions and tiers")
    return found[0] if found else text


def _listed(root: yaml.Node | None) -> Iterator[yaml.Node]:
    """The document, or the items of a List."""
    items = _child(root, "items")
    if isinstance(items, yaml.SequenceNode):
        yield from items.value
    elif root is not None:
        yield root


def _held(document: yaml.Node) -> list[str]:
    """The configurations that a ConfigMap or a chart's values hold."""
    if _text(_child(document, "kind")) == "ConfigMap":
        data = _child(document, "data")
        pairs = data.value if isinstance(data, yaml.MappingNode) else ()
        return [_in_place(value) for key, value in pairs if _text(key).endswith(_SUFFIX) and _LIKE.search(_text(value))]
    values = [_child(_child(document, outer), inner) for outer, inner in _VALUES]
    return [_in_place(value) for value in values if value is not None and _text(value)]


def _child(node: yaml.Node | None, name: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    found: yaml.Node | None = next((value for key, value in pairs if _text(key) == name), None)
    return found


def _text(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) and node.tag != "tag:yaml.org,2002:null" else ""


def _in_place(node: yaml.Node) -> str:
    """The text of a scalar on the lines that it has in its file."""
    style = node.style if isinstance(node, yaml.ScalarNode) else ""
    return "\n" * (node.start_mark.line + (style in ("|", ">"))) + _text(node)
