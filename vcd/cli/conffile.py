"""Find the configuration in a file that users have: the configuration itself, a ConfigMap, or a Helm chart's values."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from vcd.cli.command_errors import Unusable
from vcd.cli.inputs import read_text

_LARGEST = 1 << 20
"""Characters of a file that is parsed as YAML here; a ConfigMap cannot be larger."""
_SUFFIX = ".conf"
_LIKE = re.compile(r"^(actions|tiers)[ \"']*:", re.MULTILINE)
"""Matches a scheduler's configuration, but not others, such as that of Volcano's webhooks."""
_VALUES = (("scheduler", "configuration"), ("custom", "scheduler_config_override"))
"""Paths of the configuration in the values of vcd's chart and of Volcano's chart."""


def read_configuration(name: str) -> str:
    """Return the configuration in a file, or in standard input for ``-``. One that is embedded in the file is preceded
    by blank lines, so that its line numbers are those of the file. Raises Unusable."""
    text = read_text(name)
    if len(text) > _LARGEST:
        return text
    found: list[str] = []
    maps: list[str] = []
    try:
        for root in yaml.compose_all(text, Loader=yaml.SafeLoader):
            for document in _items_of(root):
                found.extend(_configurations_in(document))
                if _text(_child(document, "kind")) == "ConfigMap":
                    maps.append(_text(_child(_child(document, "metadata"), "name")))
    except (yaml.YAMLError, RecursionError):
        return text  # the parser of the configuration reports the error
    if len(found) > 1 or (maps and not found):
        names = ", ".join(maps) or "its values"
        raise Unusable(f"{name}: {len(found)} configurations in {names}; leave one with actions and tiers")
    return found[0] if found else text


def _items_of(root: yaml.Node | None) -> Iterator[yaml.Node]:
    """Yield the document, or the items of a List."""
    items = _child(root, "items")
    if isinstance(items, yaml.SequenceNode):
        yield from items.value
    elif root is not None:
        yield root


def _configurations_in(document: yaml.Node) -> list[str]:
    """Return the configurations in a ConfigMap or in a chart's values."""
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
    """Return the text of a scalar at the same line numbers as in its file."""
    style = node.style if isinstance(node, yaml.ScalarNode) else ""
    return "\n" * (node.start_mark.line + (style in ("|", ">"))) + _text(node)
