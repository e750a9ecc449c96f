"""What a plugin is.

A plugin is one class in one module of ``vcd.scheduling.plugins`` (or an entry point of the group ``vcd.plugins``). It
declares its arguments and what it reads, and has a method for each extension point that it implements
(``vcd.scheduling.framework.points``). A new instance is made for every session.
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
from vcd.scheduling.session.gauges import Gauge, JobGauge
from vcd.scheduling.session.reasons import Problem
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.holds import Hold


class Vote(enum.IntEnum):
    """An answer where plugins vote."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class Plugin:
    """Base of all plugins; see the module's docstring."""

    name: ClassVar[str]
    arguments: ClassVar[tuple[Argument, ...]] = ()
    kinds: ClassVar[tuple[str | Kind, ...]] = ()
    """Kinds it reads beside pods, nodes, groups and queues, by their names in ``vcd.model.kinds``, or declared here
    where they are its own: they are watched, logged and permitted when it is on; see ``Session.objects``."""
    timed: ClassVar[bool | str] = False
    """Whether the passing of time alone can change what it says: then cycles run at each period. The key of a switch
    among its arguments where that says so."""
    questions: ClassVar[tuple[str, ...]] = ()
    """Questions to the world outside whose answers the daemon logs as they come, such as ``usage``: when the plugin is
    on, an answer starts a cycle."""
    annotations: ClassVar[tuple[str, ...]] = ()
    """Annotations and labels that it obeys, for its page in docs/plugins/."""
    queue_fields: ClassVar[tuple[str, ...]] = ()
    """Fields of a Queue's spec that it holds queues to, by their names in ``QueueSpec``. ``field?flag`` is read only
    while that flag of its entry is set. A field that some plugin reads and no active one does is reported."""
    quotas: ClassVar[tuple[Quota, ...]] = ()
    """Limits of queues, in annotations of theirs, that only the plugin can count."""
    limits_zero: ClassVar[bool] = False
    """Whether it takes a capability of zero cpu or memory for a limit; to Volcano's other plugins it is none."""
    series: ClassVar[tuple[tuple[str, str], ...]] = ()
    """The gauges that no other plugin shows: name and meaning of each, for the metrics page."""
    bind_timeout: ClassVar[str] = ""
    """The key of its argument that says for how many seconds a pod may wait for the volumes that it chose."""
    excludes: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Plugins that may not be in its tier while a flag of its entry is set: pairs of flag and plugin."""
    protects: ClassVar[bool] = False
    """Whether only what ``unprotected`` names can be a victim, whatever other tiers say (docs/laws.md, law 7)."""

    without_it: ClassVar[str] = ""
    """What happens in a configuration without this plugin that a user hardly wants, for ``vcd conf check``."""

    treats_alike: ClassVar[bool] = False
    """Whether to it jobs are alike that differ in nothing but name, age, labels and annotations that it does not
    declare (``annotations``), as far as it tells none of their pods apart by ``kind_of``. Where all plugins say so, one
    of many such jobs is tried for all (``vcd.scheduling.session.classes``)."""
    minds_placements: ClassVar[bool] = True
    """Whether its ``pre_predicate`` may say something else of a task once others of its job are placed."""
    asks_outside: ClassVar[bool] = False
    """Whether it asks servers in a session (``session.outside``): the watchdog looks after it though it comes with vcd,
    and a run that cannot ask says so. One of ours that took too long still takes part in its session, in
    ``session.left_out``: what it does then is for it to say."""

    def __init__(self, arguments: ArgumentValues) -> None:
        self.values = arguments
        self.flags: Mapping[str, bool] = {}
        """Every enable flag of its entry in the configuration, set before ``open``."""

    def open(self, session: Session) -> None:
        """Called once, before any action; what it keeps of the session is on ``self``."""

    def close(self, session: Session) -> None:
        """Called once, after the last action."""

    def unprotected(self, point: str, asker: Any, tasks: list[Task]) -> VictimsAnswer:
        """Its answer at a victims' point about ``tasks`` where a tier without it decides.

        Only asked of plugins that protect; they mean the same as at the point itself unless they say otherwise. For
        ``victim_tasks`` nobody asks (None), and the same holds as for whole gangs.
        """
        method = getattr(self, "unified_evictable" if point == "victim_tasks" else point)
        answer: VictimsAnswer = method(asker, tasks)
        return answer

    def minds_exchanges(self) -> bool:
        """Whether what it says of tasks at ``preemptable`` and ``reclaimable`` may be another once one of them went and
        the asker waits for its room, to another asker alike of the same job; where all asked for just what he held."""
        return True

    @classmethod
    def limits_told(cls, reason: Waiting) -> Iterable[QueueLimit]:
        """The limits, of queues or of the cluster, that a reason of its own is about, also one of an older log."""
        return limits_in(reason, cls.quotas)

    def gauges(self) -> Iterable[Gauge | JobGauge]:
        """What it shows on the metrics page after the session."""
        return ()

    def holds(self) -> Iterable[Hold]:
        """Return the holds that it is responsible for and that are live now (docs/laws.md, law 8), in any order. They
        explain why resources are kept from jobs that could use them, and decide nothing."""
        return ()

    def wakes(self) -> Iterable[int]:
        """Return the times at which time alone changes what a built-in plugin says that is ``timed`` (ns since the
        epoch, in any order). A simulated clock jumps to them. Called after the session; past times do not count."""
        return ()

    def problems(self) -> Iterable[Problem]:
        """Objects that it finds misconfigured: each is told once in an Event on the object, and counted on the metrics
        page as long as it lasts. Asked after the session; it decides nothing."""
        return ()
