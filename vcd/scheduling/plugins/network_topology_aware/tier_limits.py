"""How far the pods of a job, or of its sub-jobs, may be spread: the highest tier of a domain that holds them all."""

from __future__ import annotations

from typing import NamedTuple

from vcd.model.objects import NetworkTopology
from vcd.model.reasons import Cause, Reason, ReasonCode
from vcd.model.wording import some
from vcd.scheduling.session.views import Job, SubJob
from vcd.scheduling.topology.tree import Tree

Unit = Job | SubJob
"""What a limit applies to."""

_NO_TIER = ReasonCode(
    "topology-without-tier",
    Cause.INVALID,
    "{field} is hard and names no tier",
    mend="set highestTierAllowed or highestTierName",
)
_UNKNOWN_TIER = ReasonCode(
    "topology-tier-unknown",
    Cause.INVALID,
    "{field}.highestTierName is {name}, which no HyperNode has as its tierName (existing: {existing})",
    mend="name an existing tier, or set highestTierAllowed",
)


_NO_DOMAINS = ReasonCode(
    "topology-without-hypernodes",
    Cause.INVALID,
    "{field} is hard, and there is no HyperNode",
    mend="create HyperNodes, or list node labels in the argument labels of network-topology-aware",
)


class Limits(NamedTuple):
    """The limits of one job as tiers: its own, and that of each sub-group policy; None without a limit.

    A soft limit is TOP's tier: the closest domain that works, the whole cluster at worst. A hard limit allows
    TOP only if it is above the tiers of all HyperNodes. ``refusal`` is why no pod of the job can be placed: a hard
    limit that cannot be read, or applied without HyperNodes, must not be dropped.
    """

    job: int | None
    policies: tuple[int | None, ...]
    refusal: Reason | None = None

    def of(self, unit: Unit) -> int | None:
        """Return the limit of a job or sub-job. Pods that no policy selects have the job's."""
        if isinstance(unit, Job) or unit.groups.index >= len(self.policies):
            return self.job
        return self.policies[unit.groups.index]


NO_LIMITS = Limits(None, ())


def limits_of(job: Job, tree: Tree) -> Limits:
    """Read the limits of a job from its PodGroup."""
    spec = job.record.group.spec
    if spec.network_topology is None and not spec.sub_group_policy:
        return NO_LIMITS
    own = _tier_of(spec.network_topology, "spec.networkTopology", tree)
    refusal = own if isinstance(own, Reason) else None
    policies: list[int | None] = []
    for index, policy in enumerate(spec.sub_group_policy):
        stated = policy.network_topology
        tier = _tier_of(stated, f"spec.subGroupPolicy[{index}].networkTopology", tree)
        if isinstance(tier, Reason):
            refusal = refusal or tier
            tier = None
        elif stated is not None and is_soft(stated) and isinstance(own, int):
            tier = own
        policies.append(tier)
    if own is None and not any(tier is not None for tier in policies) and refusal is None:
        return NO_LIMITS
    return Limits(own if isinstance(own, int) else None, tuple(policies), refusal)


def is_soft(topology: NetworkTopology) -> bool:
    """Whether a topology is a preference; any other mode, or none, is hard."""
    return topology.mode.lower() == "soft"


def _tier_of(topology: NetworkTopology | None, field: str, tree: Tree) -> int | Reason | None:
    if topology is None:
        return None
    highest = tree.tiers[tree.top]
    if is_soft(topology):
        return highest
    if topology.highest_tier_allowed is None and not topology.highest_tier_name:
        return _NO_TIER({"field": field})
    if not tree.top:
        return _NO_DOMAINS({"field": field})
    if topology.highest_tier_allowed is not None:
        return topology.highest_tier_allowed
    tier = tree.tier_of_name.get(topology.highest_tier_name)
    if tier is None:
        existing = some(sorted(tree.tier_of_name)) or "none"
        return _UNKNOWN_TIER({"field": field, "name": topology.highest_tier_name, "existing": existing})
    return tier
