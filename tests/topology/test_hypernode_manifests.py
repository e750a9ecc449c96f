"""``vcd hypernodes``: HyperNodes for the labels of nodes form the same domains as the labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from tests.dsl import Manifest, node
from vcd.cli import main
from vcd.scheduling.topology.hypernode_manifests import hyper_nodes_of
from vcd.scheduling.topology.tree import HOSTNAME, Tree, declared_by_labels, declared_by_objects
from vcd.state.node_facts import NodeFacts
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of


def labelled(*places: tuple[str, ...]) -> list[Manifest]:
    """Nodes with a zone, a rack and a host name, as far as given."""
    keys = ("zone", "rack", HOSTNAME)
    return [node(f"n{number}", labels=dict(zip(keys, place, strict=False))) for number, place in enumerate(places)]


def facts_of(nodes: list[Manifest]) -> NodeFacts:
    return SnapshotMaker(state_of(nodes)).snapshot().facts


CLUSTERS = {
    "one rack name in two zones": labelled(("z0", "r1"), ("z0", "r2"), ("z1", "r1"), ("z1", "r1")),
    "nodes without a rack or zone": labelled(("z0", "r1"), ("z0",), (), ("z1",)),
    "hosts": labelled(("z0", "r1", "n0"), ("z0", "r1", "n1"), ("z0", "r2", "n2")),
    "values that are no names": labelled(("Z_0", "R.1"), ("Z-0", "R.1")),
}


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("keys", [("zone", "rack"), ("zone",), ("zone", "rack", HOSTNAME)])
def test_the_objects_are_the_domains_of_the_labels(name: str, keys: tuple[str, ...]) -> None:
    facts = facts_of(CLUSTERS[name])
    manifests = hyper_nodes_of(keys, facts)
    state = state_of([*CLUSTERS[name], *manifests])
    objects = SnapshotMaker(state).snapshot().others.get("HyperNode", {})
    declared, problems = declared_by_objects(objects, facts)  # type: ignore[arg-type]
    by_objects, by_labels = Tree(declared, len(facts)), Tree(declared_by_labels(keys, facts), len(facts))
    assert [*problems, *by_objects.problems] == []
    assert shape(by_objects) == shape(by_labels)


def shape(tree: Tree) -> list[tuple[int, bytes, bytes]]:
    """Each domain's tier and nodes, with the nodes of its parent."""
    parents = tree.masks[np.array(tree.parents)]
    return sorted(
        (tier, mask.tobytes(), parent.tobytes())
        for tier, mask, parent in zip(tree.tiers, tree.masks, parents, strict=True)
    )


def test_the_command_prints_manifests(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(yaml.safe_dump_all(labelled(("z0", "r1"), ("z0", "r2"))))
    done = CliRunner().invoke(main, ["hypernodes", "-f", str(file), "--labels", "zone, rack"])
    assert done.exit_code == 0, done.output
    found = list(yaml.safe_load_all(done.output))
    assert [(each["spec"]["tier"], each["spec"]["tierName"]) for each in found] == [
        (1, "rack"),
        (1, "rack"),
        (2, "zone"),
    ]
    match = {"labelMatch": {"matchLabels": {"zone": "z0", "rack": "r1"}}}
    assert found[0]["spec"]["members"] == [{"type": "Node", "selector": match}]
    names = [each["metadata"]["name"] for each in found]
    assert [member["selector"]["exactMatch"]["name"] for member in found[2]["spec"]["members"]] == names[:2]


def test_the_command_refuses_a_label_that_no_node_has(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.write_text(yaml.safe_dump_all(labelled(("z0",))))
    done = CliRunner().invoke(main, ["hypernodes", "-f", str(file), "--labels", "row"])
    assert done.exit_code == 2
    assert "--labels: no node has the label 'row'" in done.output
