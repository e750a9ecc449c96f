"""A configuration as it is taken: read, checked against the plugins and actions that there are, and tried out."""

from __future__ import annotations

from vcd.scheduling import trial
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.policy import Policy, parse_policy


def read_policy(text: str | None, *, logged: bool = False) -> Policy:
    """`parse_policy` with the plugins and actions that there are; what ours cannot decide a cycle with is refused.

    Raises PolicyError, RegistryError.
    """
    if not logged or registry.distributions():
        registry.kinds()  # imports and checks all there are, on or not: a stranger's may use what ours declare
    plugins, actions = registry.plugins(), registry.actions()
    return parse_policy(text, actions=actions, plugins=plugins, trial=trial.faults, logged=logged)
