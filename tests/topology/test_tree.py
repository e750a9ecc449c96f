"""The tree of domains: members, parents, tiers, and what is wrong and left out."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.dsl import Manifest, node
from tests.topology.manifests import exact, hyper_node, parent
from vcd.model.kinds import KINDS
from vcd.model.objects import HyperNode, Node
from vcd.model.projection_codec import from_manifest
from vcd.model.resource_requests import CPU, MEMORY, PODS
from vcd.scheduling.topology.tree import TOP, Declared, Tree, declared_by_labels, declared_by_objects
from vcd.state.node_facts import NodeFacts
from vcd.state.records import NodeRecord

NODES = [node(f"n{number}", labels={"rack": f"r{number // 2}"}) for number in range(6)]


def facts_of(manifests: Iterable[Manifest]) -> NodeFacts:
    records = {}
    for manifest in manifests:
        _, obj, _ = from_manifest(manifest, (KINDS["Node"],))
        assert isinstance(obj, Node)
        records[obj.key] = NodeRecord.of(obj)
    return NodeFacts(records, (CPU, MEMORY, PODS))


def tree_of(*manifests: Manifest, nodes: Iterable[Manifest] = NODES) -> tuple[Tree, list[str]]:
    """The tree of some HyperNodes, and what is wrong with them."""
    objects = {}
    for manifest in manifests:
        _, obj, _ = from_manifest(manifest, (KINDS["HyperNode"],))
        assert isinstance(obj, HyperNode)
        objects[obj.key] = obj
    facts = facts_of(nodes)
    declared, problems = declared_by_objects(objects, facts)
    tree = Tree(declared, len(facts))
    return tree, [f"{problem.key}: {problem.message}" for problem in (*problems, *tree.problems)]


def nodes_in(tree: Tree, name: str) -> list[str]:
    return [f"n{row}" for row, inside in enumerate(tree.masks[tree.names.index(name)]) if inside]


def regex(pattern: str) -> Manifest:
    return {"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}}


def labels(**selector: object) -> Manifest:
    return {"type": "Node", "selector": {"labelMatch": selector}}


# --- members ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "member, found",
    [
        (exact("n1"), ["n1"]),
        (exact("absent"), []),
        (regex("^n[0-2]$"), ["n0", "n1", "n2"]),
        (regex("4"), ["n4"]),
        (labels(matchLabels={"rack": "r1"}), ["n2", "n3"]),
        (labels(matchExpressions=[{"key": "rack", "operator": "NotIn", "values": ["r1"]}]), ["n0", "n1", "n4", "n5"]),
        (labels(matchExpressions=[{"key": "gpu", "operator": "DoesNotExist"}]), ["n0", "n1", "n2", "n3", "n4", "n5"]),
        (labels(), []),
    ],
)
def test_members_select_nodes_by_name_expression_and_label(member: Manifest, found: list[str]) -> None:
    tree, problems = tree_of(hyper_node("h", 1, member))
    assert (nodes_in(tree, "h"), problems) == (found, [])


@pytest.mark.parametrize(
    "member, words",
    [
        (regex("("), "is no regular expression"),
        (regex("(a+)+$"), "repeats a group that contains a repetition"),
        (regex("((a|b)*c){2}"), "repeats a group that contains a repetition"),
        (regex("(a|a)*b"), "or a choice"),
        (regex("(a?){26}a{26}b?$"), "or a choice"),
        (regex("[[:digit:]]"), "write [0-9] instead"),
        (regex("a" * 1001), "is longer than 1000 characters"),
        (labels(matchExpressions=[{"key": "rack", "operator": "Near"}]), "selector.labelMatch.matchExpressions[0]"),
        ({"type": "Rack", "selector": {"exactMatch": {"name": "n0"}}}, "'Rack' must be Node or HyperNode"),
        ({"type": "Node", "selector": {}}, "exactly one of exactMatch, regexMatch and labelMatch"),
        ({"type": "HyperNode", "selector": {"regexMatch": {"pattern": "."}}}, "need exactMatch"),
    ],
)
def test_a_wrong_member_is_left_out_and_reported_with_its_field(member: Manifest, words: str) -> None:
    tree, (problem,) = tree_of(hyper_node("h", 1, "n0", member))
    assert nodes_in(tree, "h") == ["n0"]
    assert problem.startswith("h: spec.members[1].") and words in problem


@pytest.mark.parametrize(
    "pattern", ["^rack-(a|b)-n[0-9]+$", r"n\(+\)+", "[(+)]+x*", "(?:ab)+c?", r"((1?[0-9]|2[0-4])\.){3}"]
)
def test_repetitions_that_are_not_nested_are_allowed(pattern: str) -> None:
    assert tree_of(hyper_node("h", 1, regex(pattern)))[1] == []


def test_a_negative_tier_and_a_hyper_node_without_members_are_reported() -> None:
    tree, problems = tree_of(hyper_node("below", -1, "n0"), hyper_node("empty", 1))
    assert tree.names == ["empty", TOP]
    assert problems[0].startswith("below: spec.tier: -1") and problems[1].startswith("empty: spec.members is empty")


# --- the tree ---------------------------------------------------------------------------------------------------------


def test_a_parent_has_the_nodes_of_its_children_and_the_top_has_all() -> None:
    tree, problems = tree_of(parent("z", 2, "a", "b"), hyper_node("a", 1, "n0", "n1"), hyper_node("b", 1, "n2"))
    assert (tree.names, tree.tiers, problems) == (["a", "b", "z", TOP], [1, 1, 2, 3], [])
    assert nodes_in(tree, "z") == ["n0", "n1", "n2"]
    assert nodes_in(tree, TOP) == ["n0", "n1", "n2", "n3", "n4", "n5"]
    assert [tree.names[parent] for parent in tree.parents] == ["z", "z", TOP, TOP]
    assert tree.domains_of[0] == (0, 2, 3) and tree.domains_of[5] == (3,)


def test_without_hyper_nodes_the_top_has_tier_one() -> None:
    tree, _ = tree_of()
    assert (tree.names, tree.tiers) == ([TOP], [1])


def test_of_two_parents_the_one_of_the_lower_tier_counts_then_the_first_by_name() -> None:
    leaf = hyper_node("leaf", 1, "n0")
    tree, problems = tree_of(leaf, parent("high", 3, "leaf"), parent("low-b", 2, "leaf"), parent("low-a", 2, "leaf"))
    assert tree.names[tree.parents[0]] == "low-a"
    assert nodes_in(tree, "low-b") == nodes_in(tree, "high") == []
    assert [problem.split(",")[0] for problem in problems] == ["low-b: names leaf", "high: names leaf"]


@pytest.mark.parametrize("tier", [1, 2])
def test_a_child_that_is_not_below_its_parent_is_left_out(tier: int) -> None:
    tree, (problem,) = tree_of(hyper_node("child", tier, "n0"), parent("parent", 1, "child"))
    assert nodes_in(tree, "parent") == []
    assert f"child of tier {tier}, which is not below its own tier 1" in problem


def test_a_cycle_is_cut_where_it_goes_up() -> None:
    both = hyper_node("a", 1, "n0", exact("b", "HyperNode"))
    tree, (problem,) = tree_of(both, parent("b", 2, "a"))
    assert (nodes_in(tree, "a"), nodes_in(tree, "b")) == (["n0"], ["n0"])
    assert problem.startswith("a: names b of tier 2")


def test_a_child_that_does_not_exist_is_reported() -> None:
    tree, problems = tree_of(parent("p", 2, "absent", "a"), hyper_node("a", 1, "n3"))
    assert nodes_in(tree, "p") == ["n3"]
    assert problems == ["p: names absent, which does not exist or is invalid"]


def test_a_node_may_be_in_two_domains_of_one_tier() -> None:
    tree, problems = tree_of(hyper_node("a", 1, "n0", "n1"), hyper_node("b", 1, "n1"))
    assert (tree.domains_of[1], problems) == ((0, 1, 2), [])


def test_of_two_tiers_with_one_name_the_lower_has_it() -> None:
    tree, (problem,) = tree_of(hyper_node("a", 1, "n0", tierName="rack"), hyper_node("b", 2, "n1", tierName="rack"))
    assert tree.tier_of_name == {"rack": 1}
    assert problem.startswith("b: spec.tierName 'rack' is the name of tier 1")


def test_ancestors_and_descendants_in_a_tree_of_uneven_depth() -> None:
    tree, _ = tree_of(
        hyper_node("leaf", 1, "n0"),
        parent("mid", 2, "leaf"),
        parent("root", 4, "mid", "deep"),
        hyper_node("deep", 3, "n1"),
    )
    leaf, mid, deep, root, top = range(5)
    assert list(tree.ancestors(leaf)) == [leaf, mid, root, top]
    shared = tree.common_with_each(leaf)
    assert (shared[deep], shared[mid], shared[leaf]) == (root, mid, leaf)
    assert (tree.below(root), tree.below(mid)) == ([leaf, mid, deep, root], [leaf, mid])
    assert (tree.below(mid, deep), tree.below()) == ([leaf, mid, deep], [])


# --- labels -----------------------------------------------------------------------------------------------------------


def by_labels(*keys: str, nodes: Iterable[Manifest]) -> Tree:
    facts = facts_of(nodes)
    declared: list[Declared] = declared_by_labels(keys, facts)
    return Tree(declared, len(facts))


def test_labels_form_domains_by_their_path_from_the_widest() -> None:
    """Rack r1 of zone a and rack r1 of zone b are two domains."""
    places = [("a", "r0"), ("a", "r1"), ("b", "r1"), ("b", "r1"), ("c", None), (None, "r1")]
    nodes = [
        node(f"n{number}", labels={key: value for key, value in (("zone", zone), ("rack", rack)) if value})
        for number, (zone, rack) in enumerate(places)
    ]
    tree = by_labels("zone", "rack", nodes=nodes)
    assert tree.names == ["a/r0", "a/r1", "b/r1", "a", "b", "c", TOP]
    assert tree.tiers == [1, 1, 1, 2, 2, 2, 3]
    assert nodes_in(tree, "b/r1") == ["n2", "n3"]
    assert nodes_in(tree, "c") == ["n4"]
    assert tree.domains_of[5] == (6,)
    assert (tree.tier_of_name, tree.problems) == ({"rack": 1, "zone": 2}, [])
    assert [tree.names[tree.parents[number]] for number in range(3)] == ["a", "a", "b"]


def test_the_label_of_the_host_makes_each_node_a_domain_of_tier_zero() -> None:
    tree = by_labels("rack", "kubernetes.io/hostname", nodes=NODES[:3])
    assert tree.names == ["r0/n0", "r0/n1", "r1/n2", "r0", "r1", TOP]
    assert tree.tiers == [0, 0, 0, 1, 1, 2]
