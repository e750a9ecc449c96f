"""One cycle as a pure function: the same snapshot, policy, time and seed give the same plan, byte for byte."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Sequence
from typing import Any

from vcd.model import events as ev
from vcd.model.version import __version__
from vcd.scheduling import closing, registry, stranded
from vcd.scheduling.arguments import parse_arguments
from vcd.scheduling.candidates import Memory
from vcd.scheduling.plugin import Plugin, Predicate, Score
from vcd.scheduling.policy import PluginOption, Policy
from vcd.scheduling.session import Session
from vcd.state.snapshot import Snapshot


def decide(snapshot: Snapshot, policy: Policy, now: int, seed: int, memory: Memory | None = None) -> ev.Plan:
    """The plan for one cycle.

    ``now`` is in nanoseconds since the epoch; ``seed`` orders nodes that are equally good. ``memory`` spares work
    that an earlier call did and changes no plan. A plugin that raises is left out, and named in ``plan.faults``.
    """
    return closing.plan_of(run(snapshot, policy, now, seed, memory))


def run(
    snapshot: Snapshot,
    policy: Policy,
    now: int,
    seed: int,
    memory: Memory | None = None,
    mark: Callable[[str], None] = lambda _: None,
    watchers: Sequence[Plugin] = (),
) -> Session:
    """The session after its last action, for who wants more than the plan (explanations, metrics).

    ``mark`` is told "open", "open/PLUGIN", each action's name, "close/PLUGIN" and "close" as each of them ends, and
    may be told one more than once; who has a clock may look at it. ``watchers`` are asked before all plugins.
    """
    faults: list[str] = []
    excluded: set[str] = set()
    while True:
        plugins: list[list[tuple[Any, Plugin]]] = []
        try:
            if watchers:
                plugins.append([(PluginOption(watcher.name, {}, {}), watcher) for watcher in watchers])
            plugins.extend(instances(policy, excluded))
            used = memory if memory is not None and not excluded else Memory()
            session = Session(snapshot, policy, plugins, now, seed, used, mark)
            stranded.release(session)
            mark("open")
            for name in policy.actions:
                action = registry.actions()[name]
                action(parse_arguments(action.arguments, policy.configurations.get(name, {}))).execute(session)
                mark(name)
            for plugin in session.plugins:
                mark("close")
                plugin.close(session)
                mark(f"close/{plugin.name}")
            mark("close")
        except Exception as error:
            faulty = _plugin_at_fault(error)
            if faulty is None or faulty in excluded:
                raise
            excluded.add(faulty)
            faults.append(f"{faulty}: {error!r}")
            continue
        session.faults = tuple(faults)
        return session


def instances(policy: Policy, excluded: Collection[str] = ()) -> list[list[tuple[PluginOption, Plugin]]]:
    """A policy's plugins, tier by tier, made anew for one session; those ``excluded`` are left out."""
    return [[(option, _instance(option)) for option in tier if option.name not in excluded] for tier in policy.tiers]


def _instance(option: PluginOption) -> Plugin:
    kind = registry.plugins()[option.name]
    plugin = kind(parse_arguments(kind.arguments, option.arguments))
    plugin.flags = option.enabled
    return plugin


def _plugin_at_fault(error: BaseException) -> str | None:
    """The plugin in whose code an exception arose: the innermost one on the traceback."""
    name = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        owner = frame.f_locals.get("self")
        if isinstance(owner, Plugin):
            name = owner.name
        elif isinstance(owner, (Predicate, Score)):
            name = owner.owner
    return name


def versions() -> dict[str, str]:
    """What a session was decided by: the code, and each plugin that is not ours."""
    return {"vcd": __version__, "projection": "1"}
