"""A configuration as it is taken: read, checked against the plugins and actions that there are, and tried out."""

from __future__ import annotations

from vcd.scheduling import trial
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.policy import Policy, parse_policy


def read_policy(text: str | None, *, logged: bool = False) -> Policy:
    """`parse_policy` with the plugins and actions that there are; what ours cannot decide a cycle with is refused.

    Raises PolicyError, RegistryError.
    """
    registry.kinds()
    actions = {name: action.arguments for name, action in registry.actions().items()}
    return parse_policy(text, actions=actions, plugins=registry.plugins(), trial=trial.faults, logged=logged)
