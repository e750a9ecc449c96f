"""The base class of actions: an action is one pass over the session, and changes it by statements."""

from __future__ import annotations

from typing import ClassVar

from vcd.model.kinds import Kind
from vcd.scheduling.framework.arguments import Argument, ArgumentValues
from vcd.scheduling.framework.framework import Framework


class Action:
    """Base class of actions: one class in one module of ``vcd.scheduling.actions`` (or an entry point)."""

    name: ClassVar[str]
    arguments: ClassVar[tuple[Argument, ...]] = ()
    kinds: ClassVar[tuple[str | Kind, ...]] = ()
    """Kinds that the action reads whatever plugins are active; declared as ``Plugin.kinds``."""
    follows_order: ClassVar[bool] = False
    """Whether the action takes jobs from ``Framework.jobs_in_order``, so that one of many equivalent jobs is tried for
    all (``vcd.scheduling.session.equivalence_classes``). If any action does not, each job is tried alone."""

    def __init__(self, arguments: ArgumentValues) -> None:
        self.values = arguments

    def execute(self, framework: Framework) -> None:
        """Run the action on the framework's session."""
        raise NotImplementedError
