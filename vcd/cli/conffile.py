"""Configurations out of what people have: the file itself, a ConfigMap that holds it, or the values of a Helm chart."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from vcd.cli.errors import Unusable
from vcd.cli.inputs import read_text

_LARGEST = 1 << 20
"""Characters of a file that is looked into; a ConfigMap holds as many bytes."""
_SUFFIX = ".conf"
_VALUES = (("scheduler", "configuration"), ("custom", "scheduler_config_override"))
"""Where the values of vcd's chart, and of Volcano's, have a configuration."""


def read_configuration(name: str) -> str:
    """Return the configuration in a file, or in standard input for ``-``. Blank lines in front of one that is part of
    the file keep the numbers of its lines. Raises Unusable."""
    text = read_text(name)
    if len(text) > _LARGEST:
        return text
    try:
        for root in yaml.compose_all(text, Loader=yaml.SafeLoader):
            for document in _listed(root):
                found = _held(name, document)
                if found is not None:
                    return found
    except (yaml.YAMLError, RecursionError):
        return text  # whoever reads the configuration reports what is wrong with it
    return text


def _listed(root: yaml.Node | None) -> Iterator[yaml.Node]:
    """The document, or the items of a List."""
    items = _child(root, "items")
    if isinstance(items, yaml.SequenceNode):
        yield from items.value
    elif root is not None:
        yield root


def _held(name: str, document: yaml.Node) -> str | None:
    """The configuration that a ConfigMap or a chart's values hold; None for any other document."""
    if _text(_child(document, "kind")) == "ConfigMap":
        data = _child(document, "data")
        pairs = data.value if isinstance(data, yaml.MappingNode) else ()
        found = [value for key, value in pairs if _text(key).endswith(_SUFFIX)]
        if len(found) != 1:
            of = _text(_child(_child(document, "metadata"), "name"))
            raise Unusable(
                f"{name}: ConfigMap {of}, data: {len(found)} keys end in {_SUFFIX}; leave one, as in "
                "volcano-scheduler.conf"
            )
        return _in_place(found[0])
    for outer, inner in _VALUES:
        value = _child(_child(document, outer), inner)
        if value is not None and _text(value):
            return _in_place(value)
    return None


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
