"""A configuration as it is taken: read, checked against the plugins and actions that there are, and tried out."""

from __future__ import annotations

from vcd.scheduling import trial
from vcd.scheduling.framework import guard, registry
from vcd.scheduling.framework.policy import Policy, parse_policy


def read_policy(text: str | None, *, logged: bool = False) -> Policy:
    """`parse_policy` with the plugins and actions that there are; what ours cannot decide a cycle with is refused.

    Raises PolicyError, RegistryError.
    """
    plugins, actions = registry.plugins(), registry.actions()
    if not logged:
        registry.kinds()  # imports and checks all there are, on or not
    policy = parse_policy(text, actions=actions, plugins=plugins, trial=trial.faults, logged=logged)
    used: list[type] = [plugins[option.name] for tier in policy.tiers for option in tier]
    used += [actions[name] for name in policy.actions]
    if not all(map(guard.is_ours, used)):
        registry.kinds()  # a stranger's may use what any of ours declares
    return policy
