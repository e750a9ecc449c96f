"""Read YAML as Kubernetes does, from users and clients, at a cost bounded by the length of the text.

Times stay texts, there are no numbers to base 60, and keys that are numbers are texts. Nesting is limited, since the
parser uses the process's stack for it. The expansion of aliases is limited, since a few hundred bytes of aliases to
aliases expand to gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from vcd.model.plainjson import TOO_MANY_DIGITS

DEEPEST = 300
"""Levels of nesting that are read."""
_ALIASES, _ALIASES_PER_CHARACTER = 1_000_000, 20
"""Limit of characters that aliases may add: a fixed number, and a number per character of the text."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_Base: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlError(ValueError):
    """A text that cannot be read; ``document`` and ``line`` count from 1, ``document`` is 0 if unknown."""

    def __init__(self, message: str, line: int, document: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.document = document


class _Loader(_Base):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {  # noqa: RUF012
        first: [
            (tag, re.compile(rf"(?!.*:)(?:{pattern.pattern})", pattern.flags) if tag in _NUMBERS else pattern)
            for tag, pattern in resolvers
            if tag != "tag:yaml.org,2002:timestamp"
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep)
        return {str(key) if type(key) in (int, float) else key: value for key, value in mapping.items()}


def read_documents(text: str) -> Iterator[tuple[int, Any]]:
    """Yield each document of a text with its first line. Raises YamlError."""
    _check_nesting(text)
    loader = _Loader(text)
    number = line = 1
    try:
        while loader.check_node():
            node = loader.get_node()
            line = node.start_mark.line + 1
            if "*" in text:
                _check_aliases(node, _ALIASES + _ALIASES_PER_CHARACTER * len(text))
            yield line, loader.construct_document(node)
            number += 1
    except YamlError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # PyYAML raises all of them
        words = TOO_MANY_DIGITS if "digits" in str(error) else str(error)
        if isinstance(error, yaml.MarkedYAMLError):
            mark = error.problem_mark or error.context_mark
            line = line if mark is None else mark.line + 1
            words = " ".join(word for word in (error.context, error.problem) if word)
        raise YamlError(f"neither YAML nor JSON: {words}", line, number) from None
    finally:
        loader.dispose()


def _check_nesting(text: str) -> None:
    """Raise YamlError for a text that is nested too deep."""
    if text.count("{") + text.count("[") <= DEEPEST and max(map(len, text.splitlines()), default=0) <= DEEPEST:
        return
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                line = 0 if event.start_mark is None else event.start_mark.line
                raise YamlError(f"nested more than {DEEPEST} deep; write fewer levels", line + 1)
    except YamlError:
        raise
    except (yaml.YAMLError, ValueError):
        return  # the reader reports the error


def _check_aliases(document: yaml.Node, most: int) -> None:
    """Raise YamlError, with the line of the first node that is too large, if aliases add too much."""
    sizes: dict[int, int] = {}
    added = 0
    waiting = [(document, False)]
    while waiting:
        node, is_open = waiting.pop()
        inside = _inside(node)
        if is_open:  # a node that contains itself counts as empty there, and is refused later as no JSON
            sizes[id(node)] = 1 + sum(sizes[id(each)] for each in inside)
        elif id(node) in sizes:
            added += sizes[id(node)]
            if added > most:
                raise YamlError(
                    f"aliases add more than {most:,} characters; write their values in place", node.start_mark.line + 1
                )
        else:
            sizes[id(node)] = 1 + len(node.value) if isinstance(node, yaml.ScalarNode) else 0
            if inside:
                waiting.append((node, True))
                waiting.extend((each, False) for each in reversed(inside))


def _inside(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
