"""Load a configuration: parse it, check it against the installed plugins and actions, and try it out."""

from __future__ import annotations

from vcd.scheduling import configuration_trial
from vcd.scheduling.framework import guard, registry
from vcd.scheduling.framework.policy import Policy, parse_policy


def read_policy(text: str | None, *, logged: bool = False) -> Policy:
    """Parse a configuration with the installed plugins and actions. Refuse it if built-in ones fail to decide a cycle.

    Raises PolicyError, RegistryError.
    """
    plugins, actions = registry.plugins(), registry.actions()
    if not logged:
        registry.kinds()  # imports and checks all of them, enabled or not
    policy = parse_policy(text, actions=actions, plugins=plugins, trial=configuration_trial.faults, logged=logged)
    used: list[type] = [plugins[option.name] for tier in policy.tiers for option in tier]
    used += [actions[name] for name in policy.actions]
    if not all(map(guard.is_ours, used)):
        registry.kinds()  # a third-party plugin may use declarations of any built-in one
    return policy
