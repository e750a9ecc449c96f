"""The tree of domains over a session's nodes, from HyperNode objects or from node labels.

The tree is a pure function of the HyperNodes and the nodes. A HyperNode, or an edge between two, that is wrong is left
out and reported in ``problems``; all others count. Source: Volcano ``api/hyper_node_info.go``, which gives up the whole
tree instead (docs/differences.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vcd.model.objects import HyperNode
from vcd.scheduling.session.nodes import Ints
from vcd.scheduling.session.object_problems import Problem
from vcd.scheduling.topology.hypernode_members import HYPER_NODE, NODE, MemberError, check_member, nodes_of
from vcd.state.node_facts import Mask, NodeFacts

TOP = "<cluster-top-hypernode>"
"""The name of the domain that holds all nodes."""
HOSTNAME = "kubernetes.io/hostname"
"""The label that makes each node a domain of tier 0."""

_LOWEST_TIER = 1


class Declared(NamedTuple):
    """A domain before the tree is complete: its own nodes, and the names of the domains that it contains."""

    name: str
    tier: int
    tier_name: str
    nodes: Mask
    children: tuple[str, ...]


class Domain(NamedTuple):
    """Nodes that are close to each other: a mask over the session's nodes. A lower tier is closer.

    ``parent`` is the number of the domain that contains it, or its own for TOP.
    """

    number: int
    name: str
    tier: int
    mask: Mask
    parent: int


class DomainRow(tuple[Domain, ...]):
    """Domains that are compared with each other."""

    @cached_property
    def _members(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The nodes of all domains, domain by domain, and where each domain's end."""
        nodes = [np.flatnonzero(domain.mask) for domain in self]
        return np.concatenate([np.zeros(0, np.intp), *nodes]), np.cumsum([len(each) for each in nodes])

    def sums(self, amounts: Ints) -> Ints:
        """Return the sum of an amount per node in each domain."""
        nodes, ends = self._members
        running = np.concatenate([np.zeros(1, np.int64), np.cumsum(amounts[nodes])])
        return np.diff(running[ends], prepend=0)


class Tree:
    """Domains of nodes, each a number: ascending by tier, then by name. The last one is TOP.

    ``masks`` is bool of shape (domains, nodes). ``parents`` has the domain that contains each one, TOP's is itself.
    ``tier_of_name`` maps tier names to tiers.
    """

    def __init__(self, declared: Iterable[Declared], nodes: int) -> None:
        found = sorted(declared, key=lambda each: (each.tier, each.name))
        self.problems: list[Problem] = []
        self.names = [*(each.name for each in found), TOP]
        self.tiers = [each.tier for each in found]
        self.tiers.append(max(_LOWEST_TIER, max(self.tiers, default=0) + 1))
        self.top = len(found)
        self.parents = self._link(found)
        self.masks: npt.NDArray[np.bool_] = np.ones((len(self.names), nodes), np.bool_)
        for number, each in enumerate(found):
            self.masks[number] = each.nodes
        for number, parent in enumerate(self.parents[: self.top]):  # children come before their parents
            self.masks[parent] |= self.masks[number]
        self.tier_of_name = self._name_tiers(found)
        self._rows: dict[tuple[int, int], tuple[DomainRow, ...]] = {}
        """Results of ``rows_below``."""

    def _link(self, found: Sequence[Declared]) -> list[int]:
        """Return each domain's parent: of several, the one of the lowest tier, then the first by name."""
        number_of = {each.name: number for number, each in enumerate(found)}
        parents: dict[int, int] = {}
        for parent, each in enumerate(found):
            for name in dict.fromkeys(each.children):
                child = number_of.get(name)
                if child is None:
                    self._report(each.name, f"names {name}, which does not exist or is invalid")
                elif found[child].tier >= each.tier:
                    tiers = f"{name} of tier {found[child].tier}, which is not below its own tier {each.tier}"
                    self._report(each.name, f"names {tiers}; the member is ignored")
                elif child in parents:
                    first = found[parents[child]].name
                    self._report(each.name, f"names {name}, which belongs to {first}; the member is ignored")
                else:
                    parents[child] = parent
        return [parents.get(number, self.top) for number in range(self.top + 1)]

    def _name_tiers(self, found: Sequence[Declared]) -> dict[str, int]:
        tiers: dict[str, int] = {}
        for each in found:
            if each.tier_name and tiers.setdefault(each.tier_name, each.tier) != each.tier:
                first = tiers[each.tier_name]
                self._report(each.name, f"spec.tierName {each.tier_name!r} is the name of tier {first} already")
        return tiers

    def _report(self, name: str, message: str) -> None:
        self.problems.append(Problem(HYPER_NODE, name, message))

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def _pairs(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Each domain with each of its nodes, by domain and then by node."""
        domains, nodes = self.masks.nonzero()
        return domains, nodes

    @cached_property
    def domains_of(self) -> list[tuple[int, ...]]:
        """The domains of each node, the lowest first, TOP last."""
        domains, nodes = self._pairs
        of_nodes = domains[np.argsort(nodes, kind="stable")].tolist()
        ends = np.cumsum(np.bincount(nodes, minlength=self.masks.shape[1])).tolist()
        return [tuple(of_nodes[start:end]) for start, end in zip([0, *ends], ends, strict=False)]

    @cached_property
    def _chains(self) -> dict[tuple[int, ...], int]:
        return {domains: number for number, domains in enumerate(dict.fromkeys(self.domains_of))}

    @cached_property
    def chains(self) -> list[tuple[int, ...]]:
        """The different entries of ``domains_of``. Topology cannot distinguish two nodes of one chain."""
        return list(self._chains)

    @cached_property
    def chain_of(self) -> npt.NDArray[np.intp]:
        """Each node's chain."""
        return np.array([self._chains[domains] for domains in self.domains_of], np.intp)

    @cached_property
    def is_nested(self) -> bool:
        """Whether the domains of each node contain each other: none is in two domains that do not."""
        return all(tuple(self.ancestors(chain[0])) == chain for chain in self.chains)

    def domain(self, number: int) -> Domain:
        """Return one domain."""
        return Domain(number, self.names[number], self.tiers[number], self.masks[number], self.parents[number])

    @cached_property
    def leaves(self) -> npt.NDArray[np.intp]:
        """The lowest domain of each chain."""
        return np.array([chain[0] for chain in self.chains], np.intp)

    @cached_property
    def by_tier(self) -> list[tuple[int, npt.NDArray[np.intp]]]:
        """Each tier with the first domain of each chain there, by name; -1 for chains without one."""
        found = {tier: np.full(len(self.chains), -1, np.intp) for tier in sorted(set(self.tiers))}
        for number, chain in enumerate(self.chains):
            for domain in reversed(chain):
                found[self.tiers[domain]][number] = domain
        return list(found.items())

    @cached_property
    def members(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The nodes of all domains, domain by domain, and where each domain's begin, with the end of the last."""
        domains, nodes = self._pairs
        return np.searchsorted(domains, np.arange(len(self) + 1)), nodes

    def ancestors(self, domain: int) -> Iterator[int]:
        """Yield a domain, its parent, and so on up to TOP."""
        yield domain
        while domain != self.top:
            domain = self.parents[domain]
            yield domain

    def common_with_each(self, domain: int) -> list[int]:
        """Return for each domain the lowest one that is an ancestor of both it and ``domain``, or one of the two."""
        above, found = set(self.ancestors(domain)), [self.top] * len(self)
        for each in range(self.top, -1, -1):  # parents come before their children
            found[each] = each if each in above else found[self.parents[each]]
        return found

    def rows_below(self, domain: int, tier: int) -> tuple[DomainRow, ...]:
        """Return a domain and its descendants up to a tier, as one row for each tier, ascending."""
        key = domain, tier
        if key not in self._rows:
            rows: dict[int, list[Domain]] = {}
            for number in self.below(domain):
                if self.tiers[number] <= tier:
                    rows.setdefault(self.tiers[number], []).append(self.domain(number))
            self._rows[key] = tuple([DomainRow(rows[each]) for each in sorted(rows)])
        return self._rows[key]

    def below(self, *domains: int) -> list[int]:
        """Return domains and all their descendants, ascending."""
        inside = set(domains)
        for each in range(max(domains, default=0) - 1, -1, -1):
            if self.parents[each] in inside:
                inside.add(each)
        return sorted(inside)


def declared_by_objects(objects: Mapping[str, HyperNode], facts: NodeFacts) -> tuple[list[Declared], list[Problem]]:
    """Read HyperNodes; return what they declare, and what is wrong with them."""
    found: list[Declared] = []
    problems: list[Problem] = []
    for name, obj in sorted(objects.items()):
        spec = obj.spec
        if spec.tier < 0:
            problems.append(Problem(HYPER_NODE, name, f"spec.tier: {spec.tier} must be at least 0; it is ignored"))
            continue
        nodes = np.zeros(len(facts), np.bool_)
        children: list[str] = []
        for index, member in enumerate(spec.members):
            try:
                check_member(member)
                if member.type == NODE:
                    nodes[nodes_of(member, facts)] = True
                elif member.selector.exact_match is not None:
                    children.append(member.selector.exact_match.name)
            except MemberError as error:
                message = f"spec.members[{index}].{error}; the member is ignored"
                problems.append(Problem(HYPER_NODE, name, message))
        if not spec.members:
            problems.append(Problem(HYPER_NODE, name, "spec.members is empty; name nodes or HyperNodes"))
        found.append(Declared(name, spec.tier, spec.tier_name, nodes, tuple(children)))
    return found, problems


def declared_by_labels(keys: Sequence[str], facts: NodeFacts) -> list[Declared]:
    """Return the domains that node labels declare, ``keys`` from the widest to the narrowest.

    Nodes with equal values of a key, and of all keys before it, are one domain, with the values as its name. A node
    that lacks a key belongs to the domains of the keys before it only. The narrowest key has tier 1, or 0 if it is the
    host's name.
    """
    lowest = 0 if keys and keys[-1] == HOSTNAME else _LOWEST_TIER
    paths = [""] * len(facts)
    found: list[Declared] = []
    for place, key in enumerate(keys):
        codes, values = facts.label(key)
        rows_of: dict[str, list[int]] = {}
        parent_of: dict[str, str] = {}
        for row, code in enumerate(codes.tolist()):
            above, paths[row] = paths[row], ""
            if code >= 0 and (above or not place):
                path = paths[row] = f"{above}/{values[code]}" if above else values[code]
                rows_of.setdefault(path, []).append(row)
                parent_of[path] = above
        children: dict[str, list[str]] = {}
        for path, above in parent_of.items():
            children.setdefault(above, []).append(path)
        found = [each._replace(children=(*each.children, *children.get(each.name, ()))) for each in found]
        for path, rows in rows_of.items():
            nodes = np.zeros(len(facts), np.bool_)
            nodes[rows] = True
            found.append(Declared(path, lowest + len(keys) - 1 - place, key, nodes, ()))
    return found
