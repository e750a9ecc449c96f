"""Parameters of network topology that may let a job start: a higher tier, a label that adds a node to a HyperNode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import msgspec
import numpy as np

from vcd.diagnosis.funnel import Funnel
from vcd.model.objects import HyperNode, NetworkTopology, altered
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.search.parts import Mask
from vcd.scheduling.search.predicates.spread_predicate import HOSTNAME
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job
from vcd.state.snapshot import Snapshot
from vcd.timetravel.why.parameters import Parameter
from vcd.timetravel.why.snapshotchanges import with_group, with_labels

_TIERS = 8
"""Tiers that are tried if no HyperNode states one."""
_DOMAINS = 3
"""HyperNodes to which nodes are added by labels, at most."""


def domain_parameters(session: Session, job: Job, funnel: Funnel) -> Iterator[Parameter]:
    """Yield the limits of the job, and the labels of nodes outside of the HyperNodes that it may use."""
    spec = job.record.group.spec
    if spec.network_topology is not None:
        yield from _higher_tier(session, job, spec.network_topology, None)
    for index, policy in enumerate(spec.sub_group_policy):
        if policy.network_topology is not None:
            yield from _higher_tier(session, job, policy.network_topology, index)
    yield from _more_labelled(session, job, funnel)


def _higher_tier(session: Session, job: Job, topology: NetworkTopology, policy: int | None) -> Iterator[Parameter]:
    """Yield the highest tier of a hard limit as a parameter, up to that of the whole cluster."""
    if topology.mode.lower() == "soft":
        return
    allowed = topology.highest_tier_allowed
    now = -1 if allowed is None else allowed
    objects = session.snapshot.others.get("HyperNode", {}).values()
    tiers = [each.spec.tier for each in objects if isinstance(each, HyperNode)]
    most = max(tiers, default=_TIERS - 1) + 1 - now
    if most < 1:
        return
    stated = topology.highest_tier_name if allowed is None else str(allowed)

    def shown(_: str, tier: int) -> str:
        return stated or "(none)" if tier == now else str(tier)

    where = "" if policy is None else f"subGroupPolicy[{policy}]."
    field = "highestTierName" if topology.highest_tier_name and allowed is None else "highestTierAllowed"
    steps, likely = {"": most}, {"": 1}
    turned = partial(_with_tier, session.snapshot, job.key, policy)
    yield Parameter(
        "tier",
        job.key,
        f"{where}{field}",
        {"": now},
        {"": 1},
        likely,
        steps,
        lambda amounts: turned(amounts[""]),
        shown,
    )


def _with_tier(snapshot: Snapshot, group: str, policy: int | None, tier: int) -> Snapshot:
    record = snapshot.groups[group]
    spec = record.group.spec
    changed: dict[str, object]
    if policy is None:
        changed = {"network_topology": _limited(spec.network_topology, tier)}
    else:
        policies = list(spec.sub_group_policy)
        limited = _limited(policies[policy].network_topology, tier)
        policies[policy] = msgspec.structs.replace(policies[policy], network_topology=limited)
        changed = {"sub_group_policy": tuple(policies)}
    return with_group(snapshot, msgspec.structs.replace(record, group=altered(record.group, spec=changed)))


def _limited(topology: NetworkTopology | None, tier: int) -> NetworkTopology:
    return msgspec.structs.replace(topology or NetworkTopology(), highest_tier_allowed=tier, highest_tier_name="")


def _more_labelled(session: Session, job: Job, funnel: Funnel) -> Iterator[Parameter]:
    """Yield the labels that the nodes of a HyperNode have in common and other nodes lack, for the HyperNodes that take
    most pods."""
    rows = framework_of(session).hyper_node_gradient(job, None) or ()
    domains = sorted(
        (domain for row in rows for domain in row),
        key=lambda domain: (-int(funnel.now[domain.mask].sum()), domain.tier, domain.name),
    )
    inside = np.any([domain.mask for domain in domains], axis=0) if domains else np.zeros(0, np.bool_)
    if inside.all():
        return
    for domain in domains[:_DOMAINS]:
        for labels, names in _lacking(session, funnel, domain.mask, ~inside):
            text = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
            steps = {"": len(names)}
            yield Parameter(
                "label",
                text,
                "",
                {"": 0},
                {"": 1},
                {"": 1},
                steps,
                partial(_with_labels, session.snapshot, names, labels),
                lambda _, value: str(value),
                tuple(names),
            )


def _with_labels(
    snapshot: Snapshot, names: Sequence[str], labels: Mapping[str, str], amounts: Mapping[str, int]
) -> Snapshot:
    return with_labels(snapshot, names[: amounts[""]], labels)


def _lacking(
    session: Session, funnel: Funnel, inside: Mask, outside: Mask
) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Yield the labels that all nodes ``inside`` have and some ``outside`` lack, with these, those with most free
    capacity first."""
    nodes = session.nodes.facts.nodes
    members = [nodes[row].metadata.labels for row in np.flatnonzero(inside).tolist()]
    common = {
        key: value
        for key, value in (members[0].items() if members else ())
        if key != HOSTNAME and all(each.get(key) == value for each in members)
    }
    lacking: dict[tuple[str, ...], list[int]] = {}
    for row in np.flatnonzero(outside & (funnel.now > 0)).tolist():
        keys = tuple(sorted(key for key in common if key not in nodes[row].metadata.labels))
        if keys:
            lacking.setdefault(keys, []).append(row)
    for keys, rows in lacking.items():
        rows.sort(key=lambda row: -int(funnel.now[row]))
        yield {key: common[key] for key in keys}, [nodes[row].metadata.name for row in rows]
