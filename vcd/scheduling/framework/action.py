"""What an action is: one pass over the session that changes it through statements."""

from __future__ import annotations

from typing import ClassVar

from vcd.model.kinds import Kind
from vcd.scheduling.framework.arguments import Argument, ArgumentValues
from vcd.scheduling.framework.framework import Framework


class Action:
    """Base of all actions: one class in one module of ``vcd.scheduling.actions`` (or an entry point)."""

    name: ClassVar[str]
    arguments: ClassVar[tuple[Argument, ...]] = ()
    kinds: ClassVar[tuple[str | Kind, ...]] = ()
    """Kinds that it reads whatever plugins are on; as those of a plugin."""
    treats_alike: ClassVar[bool] = False
    """Whether it takes jobs from ``Framework.jobs_in_order``, so that one of many alike is tried for all (see
    ``Plugin.treats_alike``). Where some action does not, each job is there for itself."""

    def __init__(self, arguments: ArgumentValues) -> None:
        self.values = arguments

    def execute(self, framework: Framework) -> None:
        """Do the action's work on the framework's session."""
        raise NotImplementedError
