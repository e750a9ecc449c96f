"""Sessions in which no action ran yet, and the way to a plugin, a job, a task or a queue of one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.victims import Victims
from vcd.scheduling.session.queue_view import Queue
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task

P = TypeVar("P", bound=Plugin)


def conf(*plugins: str, arguments: dict[str, Any] | None = None, actions: str = "enqueue, allocate, backfill") -> str:
    """A configuration of one tier; ``arguments`` are the last plugin's."""
    lines = [f'actions: "{actions}"', "tiers:", "- plugins:", *[f"  - name: {name}" for name in plugins]]
    if arguments:
        lines += ["    arguments:", *[f"      {key}: {value}" for key, value in arguments.items()]]
    return "\n".join(lines) + "\n"


def plugin_of(session: Session, kind: type[P]) -> P:
    """The session's plugin of a class."""
    return next(plugin for plugin in framework_of(session).plugins if isinstance(plugin, kind))


def job_of(session: Session, name: str) -> Job:
    """The job of a group in the namespace default."""
    return session.job(session.jobs.index(f"default/{name}"))


def task_of(session: Session, name: str, namespace: str = "default") -> Task:
    """The task of a pod."""
    return session.task(list(session.snapshot.tasks.keys).index(f"{namespace}/{name}"))


def tasks_of(session: Session, *names: str) -> list[Task]:
    """The tasks of pods in the namespace default."""
    return [task_of(session, name) for name in names]


def queue_of(session: Session, name: str) -> Queue:
    """A queue by name."""
    return session.queues[name]


def let_go(plugin: Plugin, point: str, asker: Any, tasks: list[Task]) -> list[str]:
    """Whom of ``tasks`` a plugin lets go together at a victims' point, if nobody else is asked."""
    return named(Victims(tasks, [(plugin.name, getattr(plugin, point)(asker, tasks))]).together())


def named(tasks: Iterable[Task]) -> list[str]:
    """The names of tasks."""
    return [task.name for task in tasks]
