"""Which planted bugs a run comes to: where it never comes to the code that a bug changes, the bug changes nothing.

Modules are compiled with a mark before each place that a mutant changes. A mark does nothing but note the name of the
mutant, so that a run goes the way that it goes without.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeGuard

from tests.simulation.mutants import Finder, Mutant, mutants

_NOTE = "__reached__"
REACHED: set[str] = set()
"""The mutants to whose code this process came, also while it imported a module."""


class _Place(NamedTuple):
    """In a list of statements, the index before which something is another."""

    body: list[ast.stmt]
    index: int


def mark() -> None:
    """Let this process, which has not imported vcd yet, note in ``REACHED`` to which mutants' code it comes."""
    modules: dict[str, dict[str, Mutant]] = {}
    for name, mutant in mutants().items():
        modules.setdefault(mutant.module, {})[name] = mutant
    if known := sys.modules.keys() & modules.keys():
        raise RuntimeError(f"{min(known)} is imported already: marks have to come before it")
    setattr(builtins, _NOTE, REACHED.add)
    for module, named in modules.items():
        source = next(iter(named.values())).path.read_text()
        sys.meta_path.insert(0, Finder(module, marked(source, {name: each.source() for name, each in named.items()})))


def marked(source: str, changed: Mapping[str, str]) -> ast.Module:
    """A module with a mark before each place that is another one in one of some other texts, by their names."""
    tree = ast.parse(source)
    places = [(place, name) for name, text in changed.items() for place in _places(tree.body, ast.parse(text).body)]
    for place, name in sorted(places, key=lambda one: one[0].index, reverse=True):  # each list from behind
        note = ast.parse(f"{_NOTE}({name!r})").body[0]
        for node in ast.walk(note):
            ast.copy_location(node, place.body[min(place.index, len(place.body) - 1)])
        place.body.insert(place.index, note)
    return tree


def _places(body: list[ast.stmt], changed: list[ast.stmt]) -> Iterator[_Place]:
    """Where what is executed is another one at first, in a list of statements or in what is inside of them."""
    same = _alike(body, changed)
    behind = min(_alike(body[::-1], changed[::-1]), len(body) - same, len(changed) - same)
    olds, news = body[same : len(body) - behind], changed[same : len(changed) - behind]
    if len(olds) != len(news) or len(olds) != 1 or _head(olds[0]) != _head(news[0]):
        if olds or news:
            yield _Place(body, same)
        return
    yield from _inside(olds[0], news[0])


def _inside(old: ast.AST, new: ast.AST) -> Iterator[_Place]:
    """The same for the blocks of one statement, whose own words are the same."""
    for name in _blocks(old):
        parts, others = getattr(old, name), getattr(new, name)
        if _are_statements(parts) or _are_statements(others):
            yield from _places(parts, others)
        else:  # the handlers of a try, the cases of a match
            for part, other in zip(parts, others, strict=True):
                yield from _inside(part, other)


def _alike(some: Sequence[ast.AST], others: Sequence[ast.AST]) -> int:
    """How many at the beginning of both are the same."""
    count = 0
    for one, other in zip(some, others, strict=False):
        if ast.dump(one) != ast.dump(other):
            break
        count += 1
    return count


def _blocks(node: ast.AST) -> list[str]:
    """The fields of a statement that hold statements, or parts that do."""
    found = []
    for name, value in ast.iter_fields(node):
        if isinstance(value, list) and value and isinstance(value[0], (ast.stmt, ast.ExceptHandler, ast.match_case)):
            found.append(name)
    return found


def _are_statements(parts: list[ast.AST]) -> TypeGuard[list[ast.stmt]]:
    return bool(parts) and isinstance(parts[0], ast.stmt)


def _head(node: ast.AST) -> str:
    """What a statement says beside its blocks, with the heads of the parts that have blocks of their own."""
    blocks = _blocks(node)
    words = [type(node).__name__]
    for name, value in ast.iter_fields(node):
        if name not in blocks:
            words.append(f"{name}={[ast.dump(each) if isinstance(each, ast.AST) else each for each in _listed(value)]}")
        elif not isinstance(value[0], ast.stmt):
            words.append(f"{name}={[_head(each) for each in value]}")
        else:
            words.append(name)
    return " ".join(words)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]
