"""One cycle as a pure function: the same snapshot, policy, time and seed give the same plan, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from vcd.model import events as ev
from vcd.model.version import __version__
from vcd.scheduling import partial_gangs, reservation_expiry, session_close
from vcd.scheduling.framework import execution, guard, registry
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.job_validity import tell_of_large_pods
from vcd.scheduling.framework.plugin import CALLS, Plugin
from vcd.scheduling.framework.policy import PluginOption, Policy
from vcd.scheduling.framework.trace import Trace
from vcd.scheduling.holdnotes import note_holds
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.outside import NOBODY, Outside
from vcd.scheduling.session.session import Session
from vcd.state.snapshot import Snapshot


def decide(
    snapshot: Snapshot,
    policy: Policy,
    now: int,
    seed: int,
    memory: Memory | None = None,
    *,
    outside: Outside = NOBODY,
    interrupted: Sequence[str] = (),
    trace: Trace | None = None,
) -> ev.Plan:
    """Return the plan for one cycle.

    ``now`` is in nanoseconds since the epoch. ``seed`` orders equally good nodes. ``memory`` saves work done by an
    earlier call and changes no plan. ``outside`` answers plugins' requests to other servers (by default there are
    none). ``trace`` records how the decision is made, and changes no plan.

    A plugin that raises is listed in ``plan.faults``: its orders and scores are left out, and its vetoes hold where it
    fails. An action that raises is left out. ``interrupted`` names plugins and actions to leave out from the beginning
    (``SessionDecided.interrupted``).
    """
    return session_close.plan_of(
        run(snapshot, policy, now, seed, memory, outside=outside, interrupted=interrupted, trace=trace)
    )


def run(
    snapshot: Snapshot,
    policy: Policy,
    now: int,
    seed: int,
    memory: Memory | None = None,
    mark: Callable[[str], None] = lambda _: None,
    *,
    outside: Outside = NOBODY,
    watch: guard.Watch | None = None,
    interrupted: Sequence[str] = (),
    trace: Trace | None = None,
) -> Session:
    """Return the session after its last action, for callers that need more than the plan (explanations, metrics).

    ``mark(phase)`` is called when a phase ends: "open", "open/PLUGIN", each action's name, "close/PLUGIN", "close". A
    phase can end more than once when the session is decided again. Callers use it to record timings. ``watch`` is
    notified when a third-party plugin or action is entered and left. If one takes too long, this raises
    guard.Interrupted: call it again with what happened added to ``interrupted``.
    """
    faults = list(interrupted)
    unexplained: Exception | None = None
    late = {guard.name_in(fault) for fault in interrupted}
    excluded = {name for name in late if not _takes_part_when_late(name)}
    errors: dict[str, Exception] = {}
    failed: dict[str, guard.Failure] = {}
    while True:
        try:
            plugin_guard = guard.Guard(watch, everyone=unexplained is not None, failed=failed)
            plugins = instances(policy, excluded, plugin_guard)
            used = memory if memory is not None and not errors else Memory()
            session = Session(
                snapshot, now, seed, policy_digest=policy.digest, outside=outside, left_out=sorted(excluded | late)
            )
            framework = Framework(session, policy, plugins, used, plugin_guard, mark, trace)
            if all(registry.actions()[name].follows_order for name in policy.actions):
                framework.find_equivalent_jobs()
            session.take_turns()
            partial_gangs.release(framework)
            reservation_expiry.end_reservations(session)
            tell_of_large_pods(session)
            mark("open")
            _execute([name for name in policy.actions if guard.action_name(name) not in excluded], framework, mark)
            note_holds(framework)
            framework.tell("close")
            mark("close")
        except guard.Interrupted:
            if memory is not None:
                memory.reset()
            raise
        except Exception as error:
            faulty = guard.at_fault(error)
            if memory is not None:
                memory.reset()
            if faulty is None and unexplained is None:
                unexplained = error  # the next attempt guards every plugin, and so learns which one raises it
                continue
            before = None if faulty is None else failed.get(faulty)
            if faulty is None or faulty in excluded or (before is guard.Failure.BROKEN):
                raise
            unexplained = None
            if before is None:
                faults.append(guard.fault(faulty, error))
                errors[faulty] = error
            if faulty in registry.plugins():
                failed[faulty] = guard.Failure.of(error, before)
            else:
                excluded.add(faulty)
            continue
        if unexplained is not None:
            raise unexplained
        session.faults, session.interrupted, session.errors = tuple(faults), tuple(interrupted), errors
        return session


def _execute(names: Sequence[str], framework: Framework, mark: Callable[[str], None]) -> None:
    for name in names:
        action = registry.actions()[name]
        values = framework.policy.values(name, action.arguments, framework.policy.configurations.get(name))
        execution.execute(action, values, framework)
        mark(name)


def instances(
    policy: Policy, excluded: Collection[str] = (), plugin_guard: guard.Guard | None = None
) -> list[list[tuple[PluginOption, Plugin]]]:
    """Return new instances of a policy's plugins for one session, tier by tier, without the ``excluded`` plugins."""
    plugin_guard = plugin_guard or guard.Guard()

    def make(option: PluginOption) -> Plugin:
        kind = registry.plugins()[option.name]
        return plugin_guard.make(kind, policy.values(option.name, kind.arguments, option.arguments), option.enabled)

    return [[(option, make(option)) for option in tier if option.name not in excluded] for tier in policy.tiers]


def _takes_part_when_late(name: str) -> bool:
    """Whether a plugin that took too long is still in the session. If so, ``Session.left_out`` has its name."""
    kind = registry.plugins().get(name)
    return kind is not None and guard.is_ours(kind) and CALLS in kind.outside


PLAN = "plan"
"""The key in ``versions`` of the version of the format of plans."""
PLAN_VERSION = "3"
"""2: reasons are codes instead of text. 3: conditions have no messages."""


RULES = "rules"
"""The key in ``versions`` of the version of the decision rules."""
RULES_VERSION = "2"
"""Raise it with each change of a decision on the same input, and list the change in CHANGELOG.md.

``vcd replay`` then attributes different plans of earlier sessions to it. Sessions without a recorded version were
decided by rules 1.
"""


def versions() -> dict[str, str]:
    """Return the versions of what decides a session: the code, its rules, and each third-party plugin."""
    return {
        "vcd": __version__,
        "projection": "2",
        PLAN: PLAN_VERSION,
        RULES: RULES_VERSION,
        **registry.distributions(),
    }


def rules_of(recorded: Mapping[str, str]) -> str:
    """Return the version of the rules that decided a session with these recorded versions."""
    return recorded.get(RULES, "1")
