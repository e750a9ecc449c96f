"""Replacements for names, in the same order: comparing two new names gives the result of comparing the old ones.

A new name is its rank among all words of the log, in fixed width, and what the word first named: ``a0042-node``. Words
that have a meaning for Kubernetes or Volcano stay, as do numbers, quantities and times; the prefix of other words
keeps their order relative to these.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Iterable
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
"""Words with a meaning: well-known names, and values of arguments and annotations."""
_AMOUNT = re.compile(r"[+-]?\d+(\.\d+)?(%|[A-Za-zµ]{1,2}(\d+(\.\d+)?[a-zµ]{1,2})*)?")
"""Numbers, quantities, percentages and durations."""
_MOST_TRIES = 20_000_000
"""Node names that are tried, at most, to keep the order in which a seed puts equal nodes."""


def stays(word: str) -> bool:
    """Return whether a word is not a name."""
    return word in KEPT or _AMOUNT.fullmatch(word) is not None


class Words:
    """The words of a log: first they are collected, then replaced."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._unchanged: set[str] = set()
        self._indexed: set[str] = set()
        self._composed: dict[str, tuple[str, str]] = {}
        self._new: dict[str, str] | None = None

    def __call__(self, word: str, what: str) -> str:
        """Return the replacement of a word that names such a thing; the word itself while words are collected."""
        if self._new is not None:
            return self._new.get(word, word)
        if stays(word):
            self._unchanged.add(word)
        else:
            self._kinds.setdefault(word, what)
        return word

    def named(self, word: str, what: str) -> str:
        """Do the same for an object's own name, which states its kind more precisely."""
        if self._new is None and not stays(word):
            self._kinds[word] = what
            if what == "pod" and index_in_name(word) is not None:
                self._indexed.add(word)
        return self(word, what)

    def keep(self, words: Iterable[str]) -> None:
        """Keep words unchanged: resources, hardware."""
        self._unchanged.update(words)

    def made_of(self, word: str, first: str, second: str) -> None:
        """Note a name that combines two others, ``first-second``, so that its replacement does, too."""
        self._composed[word] = first, second

    def knows(self, word: str) -> bool:
        """Return whether a word was collected or stays."""
        return word in self._kinds or word in self._unchanged

    def known_as(self, *kinds: str) -> set[str]:
        """Return the words that were collected as one of some kinds."""
        return {word for word, what in self._kinds.items() if what in kinds}

    def settle(self, seeds: Iterable[int], nodes: Iterable[str]) -> None:
        """Compute the replacements; from now on words are replaced. ``seeds`` put equal ``nodes`` into an order by
        name, which the new names preserve. Raises LogError if no such names are found."""
        namespaces = self.known_as("namespace")
        # keys are compared as namespace/name
        ordered = sorted(
            self._kinds.keys() - self._unchanged, key=lambda word: (f"{word}/" if word in namespaces else word, word)
        )
        anchors, width = sorted(self._unchanged - {""}), len(str(len(ordered)))
        new, between = {}, dict[int, str]()
        for rank, word in enumerate(ordered):
            place = bisect_left(anchors, word)
            if place not in between:
                between[place] = _between(anchors[place - 1] if place else "", (*anchors[place:], None)[0])
            new[word] = f"{between[place]}{rank:0{width}d}-{self._kinds[word]}"
            if word in self._indexed:
                new[word] += f"-{index_in_name(word)}"
        _order_by_seeds(new, [seed for seed in sorted(set(seeds)) if seed > 0], sorted(set(nodes) & new.keys()))
        for word, (first, second) in self._composed.items():
            new[word] = f"{new.get(first, first)}-{new.get(second, second)}"
        self._new = new


def _between(low: str, high: str | None) -> str:
    """Return a prefix that sorts words between two others (``high`` None: after the first)."""
    heads = [word[:length] for word in (low, high or "") for length in range(len(word) + 1)]
    for head in sorted(heads, key=len):
        for letter in ascii_lowercase + digits:
            found = head + letter
            if low < found and (high is None or (found < high and not high.startswith(found))):
                return found
    return f"{low}-0"


def _order_by_seeds(new: dict[str, str], seeds: list[int], nodes: list[str]) -> None:
    """Append suffixes to node names so that each seed puts them into the same order as the old names."""
    if not seeds or not nodes:
        return
    count = len(nodes)
    if count ** len(seeds) * count > _MOST_TRIES:
        raise LogError(
            f"cannot rename {count} nodes: {len(seeds)} sessions order equal nodes by seeds, and these orders must not"
            " change; choose fewer sessions with --from and --to"
        )
    place: dict[str, list[int]] = {node: [] for node in nodes}
    for seed in seeds:
        for number, node in enumerate(sorted(nodes, key=lambda node: (name_bits(seed, node), node))):
            place[node].append(number)
    for node in nodes:
        tried = (f"{new[node]}-x{number:x}" for number in itertools.count())
        new[node] = next(name for name in tried if _slices(name, seeds, count) == place[node])


def _slices(name: str, seeds: list[int], count: int) -> list[int]:
    """Return into which of ``count`` equal parts of its order each seed puts a name."""
    return [name_bits(seed, name) * count >> 64 for seed in seeds]
