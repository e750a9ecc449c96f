"""The base class of plugins, and what a plugin declares.

A plugin is one class in one module of ``vcd.scheduling.plugins``, or an entry point of the group ``vcd.plugins``. It
declares its arguments and what it reads, and has a method for each extension point that it implements
(``vcd.scheduling.framework.points``). Each session creates new instances, so no plugin state outlives a session.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from vcd.model.events import Waiting
from vcd.model.kinds import Kind
from vcd.scheduling.framework.arguments import Argument, ArgumentValues
from vcd.scheduling.framework.quotas import QueueLimit, Quota, limits_in
from vcd.scheduling.framework.victims import VictimsAnswer
from vcd.scheduling.search.parts import ANY_KEY
from vcd.scheduling.session.gauges import Gauge, JobGauge
from vcd.scheduling.session.object_problems import Problem
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.holds import Hold

CALLS = "calls"
"""In ``Plugin.outside``: the plugin calls servers during a session."""


class Vote(enum.IntEnum):
    """A plugin's answer at a point that combines votes."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class Plugin:
    """Base class of plugins. The class attributes are declarations; all of them are optional, except ``name``."""

    name: ClassVar[str]
    arguments: ClassVar[tuple[Argument, ...]] = ()
    kinds: ClassVar[tuple[str | Kind, ...]] = ()
    """Kinds that the plugin reads in addition to pods, nodes, groups and queues: names from ``vcd.model.kinds``, or
    ``Kind`` objects for kinds of its own. While the plugin is active, vcd watches and logs them, and ``vcd conf rbac``
    grants access to them. ``Session.objects`` returns the objects."""
    timed: ClassVar[bool | str] = False
    """Whether the plugin's answers can change with time alone; then a cycle also runs every period. A text is the key
    of the boolean argument that turns this on."""
    keys: ClassVar[tuple[str, ...]] = (ANY_KEY,)
    """Annotations and labels of pods, groups and queues that change the plugin's results. Its page in docs/plugins/
    lists them. Jobs that differ only in name, age, and other annotations and labels are equivalent for the plugin, and
    one of them is tried for all (``vcd.scheduling.session.equivalence_classes``). Of equivalent tasks of a job,
    ``pre_predicate`` is called for one. With ``ANY_KEY`` no two jobs are equivalent for a plugin that implements more
    than ``predicates`` and ``node_order``, and its tasks are placed one by one."""
    queue_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of a Queue's spec that the plugin enforces, by their names in ``QueueSpec``. ``field?flag`` is read only
    while that flag of the plugin's entry is on. If some plugin reads a field but no active one does, vcd reports this
    on queues that set the field."""
    supports: ClassVar[tuple[str, ...]] = ()
    """Fields of a PodGroup's spec that only this plugin implements, by their names in ``vcd.model.unsupported``. Groups
    that require one of them wait while no active plugin supports it."""
    quotas: ClassVar[tuple[Quota, ...]] = ()
    """Limits that queues state in annotations and that only this plugin can count."""
    limits_zero: ClassVar[bool] = False
    """Whether a capability of zero cpu or memory is a limit. For Volcano's other plugins, zero means no limit."""
    series: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Name and meaning of each gauge that only this plugin exposes, for the page about metrics."""
    bind_timeout: ClassVar[str] = ""
    """The key of the argument with the seconds that a bind may wait for the volumes that the plugin chose."""
    excludes: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Pairs of an enable flag and a plugin: while the flag of this plugin's entry is on, the other plugin may not be in
    the same tier."""
    protects: ClassVar[bool] = False
    """Whether pods that ``unprotected`` omits can never be victims, whatever other tiers answer (docs/laws.md, law 7).
    """

    without_it: ClassVar[str] = ""
    """What goes wrong in a configuration without this plugin, for ``vcd conf check``. Empty if nothing does."""

    outside: ClassVar[tuple[str, ...]] = ()
    """What it uses from outside the cluster. ``usage``: metrics that the daemon polls and logs as they arrive; each
    arrival starts a cycle. ``CALLS``: calls to servers during a session (``session.outside``). The watchdog then limits
    its time, even if it is built-in, and commands that cannot make such calls report this. A built-in plugin that took
    too long still takes part in the repeated session, with its name in ``session.left_out``, and decides itself how to
    behave there."""

    def __init__(self, arguments: ArgumentValues) -> None:
        self.values = arguments
        self.flags: Mapping[str, bool] = {}
        """Every enable flag of the plugin's entry in the configuration; set before ``open``."""

    def open(self, session: Session) -> None:
        """Prepare for a session; called once, before any action. Store the session on ``self`` if methods need it."""

    def close(self, session: Session) -> None:
        """Finish the session; called once, after the last action."""

    def unprotected(self, point: str, asker: Any, tasks: list[Task]) -> VictimsAnswer:
        """Return the victims that the plugin leaves unprotected if a tier without it decides.

        Called only if ``protects``. The answer means the same as at the victims' point ``point``, which answers unless
        a subclass overrides this. At ``victim_tasks`` there is no preemptor: ``asker`` is None, and
        ``unified_evictable`` answers.
        """
        method = getattr(self, "unified_evictable" if point == "victim_tasks" else point)
        answer: VictimsAnswer = method(asker, tasks)
        return answer

    @classmethod
    def limits_of_reason(cls, reason: Waiting) -> Iterable[QueueLimit]:
        """Return the limits, of queues or of the cluster, that a reason of this plugin is about. The reason may come
        from a log that an older version wrote."""
        return limits_in(reason, cls.quotas)

    def gauges(self) -> Iterable[Gauge | JobGauge]:
        """Return the plugin's metrics; called after the session."""
        return ()

    def holds(self) -> Iterable[Hold]:
        """Return the live holds that the plugin is responsible for (docs/laws.md, law 8), in any order.

        They explain why resources are withheld from jobs that could use them. They decide nothing.
        """
        return ()

    def wakes(self) -> Iterable[int]:
        """Return the times at which the answers of this plugin change with time alone (ns since the epoch, in any
        order).

        Called after the session, for built-in plugins only. A simulated clock jumps to these times. Past times are
        ignored.
        """
        return ()

    def problems(self) -> Iterable[Problem]:
        """Return objects that the plugin finds misconfigured; called after the session, and decides nothing.

        Each problem becomes one Event on its object, and counts in the metrics until it is fixed.
        """
        return ()
