"""A configuration as it is taken: read, checked against the plugins and actions that there are, and tried out."""

from __future__ import annotations

import re

from vcd.model.kinds import Kind
from vcd.scheduling import trial
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.arguments import ArgumentError, ArgumentValues
from vcd.scheduling.framework.policy import Policy, parse_policy

_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def read_policy(text: str | None, *, logged: bool = False) -> Policy:
    """`parse_policy` with the plugins and actions that there are; what ours cannot decide a cycle with is refused.

    Raises PolicyError, RegistryError.
    """
    registry.kinds()
    return parse_policy(
        text,
        actions={name: action.arguments for name, action in registry.actions().items()},
        plugins={name: plugin.arguments for name, plugin in registry.plugins().items()},
        excludes={name: plugin.excludes for name, plugin in registry.plugins().items()},
        check=_check_arguments,
        trial=trial.faults,
        logged=logged,
    )


def _check_arguments(name: str, values: ArgumentValues) -> None:
    """Make the plugin, as each session will, and see whether its kinds can be asked for. Raises ArgumentError."""
    for kind in registry.plugins()[name].kinds:
        for key in kind.argument_keys() if isinstance(kind, Kind) else ():
            if not _OBJECT_NAME.fullmatch(values[key]):
                raise ArgumentError(key, values[key], "a name: lower-case letters, digits, - and .")
    try:
        registry.plugins()[name](values)
    except ArgumentError:
        raise
    except Exception:  # noqa: BLE001 - a stranger's defect: each session leaves the plugin out and tells of it
        return
