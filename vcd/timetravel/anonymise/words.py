"""Other words for names, in the same order: whatever compares two names finds of the new ones what it found of the old.

A new word is its rank among all words of the log, of one width, and what it was first seen as: ``a0042-node``. Words
that mean something to Kubernetes or Volcano stay, and so do numbers, quantities and times; the others' ranks are put
between them.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from string import ascii_lowercase, digits

from vcd.eventlog import LogError
from vcd.state.records import index_in_name, name_bits

KEPT = frozenset(
    {
        "", "*", "default", "root", "volcano", "default-scheduler", "kube-system", "kube-public", "kube-node-lease",
        "volcano-system", "system-cluster-critical", "system-node-critical", "latest", "true", "false", "True", "False",
        "t", "T", "TRUE", "none", "best-effort", "restricted", "single-numa-node", "LeastAllocated", "MostAllocated",
        "allocating", "success", "failed", "0.0.0.0",
    }
)  # fmt: skip
"""Words that are read as such: well-known names, and what arguments and annotations may say."""
_AMOUNT = re.compile(r"[+-]?\d+(\.\d+)?(%|[A-Za-zµ]{1,2}(\d+(\.\d+)?[a-zµ]{1,2})*)?")
"""Numbers, quantities, percentages and lengths of time."""
_MOST_TRIES = 20_000_000
"""How many names of nodes are tried where a seed orders equal nodes."""


def stays(word: str) -> bool:
    """Whether a word is nobody's name."""
    return word in KEPT or _AMOUNT.fullmatch(word) is not None


class Words:
    """All that is renamed: what was seen of a log, then what it becomes."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}
        self._staying: set[str] = set()
        self._indexed: set[str] = set()
        self._made: dict[str, tuple[str, str]] = {}
        self._new: dict[str, str] | None = None

    def __call__(self, word: str, what: str) -> str:
        """The word that stands for one, which is the name of such a thing; the same while words are collected."""
        if self._new is not None:
            return self._new.get(word, word)
        if stays(word):
            self._staying.add(word)
        else:
            self._seen.setdefault(word, what)
        return word

    def named(self, word: str, what: str) -> str:
        """The same of an object's own name, which says better what it is."""
        if self._new is None and not stays(word):
            self._seen[word] = what
            if what == "pod" and index_in_name(word) is not None:
                self._indexed.add(word)
        return self(word, what)

    def keep(self, words: Iterable[str]) -> None:
        """Words that shall stay as they are: resources, hardware."""
        self._staying.update(words)

    def made_of(self, word: str, first: str, second: str) -> None:
        """A name that is made of two others, ``first-second``, and stays so."""
        self._made[word] = first, second

    def knows(self, word: str) -> bool:
        """Whether a word was seen, or stays."""
        return word in self._seen or word in self._staying

    def known_as(self, *kinds: str) -> set[str]:
        """The words that were first seen as something."""
        return {word for word, what in self._seen.items() if what in kinds}

    def settle(self, seeds: Iterable[int], nodes: Iterable[str]) -> None:
        """From now on give the new words. ``seeds`` order equal ``nodes`` by their names, which keeps them in this
        order. Raises LogError where no such names can be found."""
        namespaces = self.known_as("namespace")
        # keys are compared as namespace/name
        ordered = sorted(
            self._seen.keys() - self._staying, key=lambda word: (f"{word}/" if word in namespaces else word, word)
        )
        anchors, width = sorted(self._staying - {""}), len(str(len(ordered)))
        new, between = {}, dict[int, str]()
        for rank, word in enumerate(ordered):
            place = bisect_left(anchors, word)
            if place not in between:
                between[place] = _between(anchors[place - 1] if place else "", (*anchors[place:], None)[0])
            new[word] = f"{between[place]}{rank:0{width}d}-{self._seen[word]}"
            if word in self._indexed:
                new[word] += f"-{index_in_name(word)}"
        _order_by_seeds(new, [seed for seed in sorted(set(seeds)) if seed > 0], sorted(set(nodes) & new.keys()))
        for word, (first, second) in self._made.items():
            new[word] = f"{new.get(first, first)}-{new.get(second, second)}"
        self._new = new

    def originals(self) -> Iterator[str]:
        """The words that are renamed."""
        return iter(self._seen.keys() - self._staying)


def _between(low: str, high: str | None) -> str:
    """Letters with which words begin that lie between two others (``high`` None: after the first)."""
    heads = [word[:length] for word in (low, high or "") for length in range(len(word) + 1)]
    for head in sorted(heads, key=len):
        for letter in ascii_lowercase + digits:
            found = head + letter
            if low < found and (high is None or (found < high and not high.startswith(found))):
                return found
    return f"{low}-0"


def _order_by_seeds(new: dict[str, str], seeds: list[int], nodes: list[str]) -> None:
    """Give nodes' words ends with which each seed orders them as it did their names."""
    if not seeds or not nodes:
        return
    count = len(nodes)
    if count ** len(seeds) * count > _MOST_TRIES:
        raise LogError(
            f"{count} nodes ordered by {len(seeds)} seeds other than 0 cannot be renamed in the same order; choose"
            " fewer sessions with --from and --to"
        )
    place: dict[str, list[int]] = {node: [] for node in nodes}
    for seed in seeds:
        for number, node in enumerate(sorted(nodes, key=lambda node: (name_bits(seed, node), node))):
            place[node].append(number)
    for node in nodes:
        tried = (f"{new[node]}-x{number:x}" for number in itertools.count())
        new[node] = next(name for name in tried if _slices(name, seeds, count) == place[node])


def _slices(name: str, seeds: list[int], count: int) -> list[int]:
    """Into which of so many equal parts of the order each seed puts a name."""
    return [name_bits(seed, name) * count >> 64 for seed in seeds]
