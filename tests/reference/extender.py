"""The plugin extender: a server of one's own, here a function of names, of how many tasks are on a node, and of how
many jobs it was told were admitted.

What it answers comes as one more object, of kind ``ExtenderAnswers``: a seed, and the verbs that fail.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from tests.reference.config import Arguments
from tests.reference.evictions import Allowance, Each
from tests.reference.model import Job, Node, Queue, Task
from tests.reference.session import ABSTAIN, PERMIT, REJECT, Session

KIND = "ExtenderAnswers"


class Server:
    """Answers by chance, the same each time it is asked the same."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.seed, self.down = answers["seed"], answers["down"]
        self.admitted = 0

    def _draw(self, *about: Any) -> int:
        text = "/".join(map(str, (self.seed, *about)))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")

    def refuses(self, job: str, node: str, tasks: int) -> bool:
        return self._draw("predicate", job, node, tasks) % 3 == 0

    def points(self, job: str, node: str, tasks: int) -> int:
        return self._draw("prioritize", job, node, tasks) % 200 - 50

    def vote(self, job: str) -> int:
        return self._draw("jobEnqueueable", job, self.admitted) % 3 - 1

    def overused(self, queue: str) -> bool:
        return self._draw("queueOverused", queue, self.admitted) % 4 == 0

    def ready(self, job: str) -> bool:
        return self._draw("jobReady", job) % 4 != 0

    def has_a_say(self, verb: str, evictor: str) -> bool:
        """Whether it says anything of whom one may evict."""
        return self._draw(verb, evictor) % 4 != 0

    def names(self, verb: str, evictor: str, uid: str) -> bool:
        return self._draw(verb, evictor, uid) % 2 == 0

    def forbids(self, task: str, node: str) -> bool:
        """Whether it refuses a placement that it is told of."""
        return self._draw("allocateFunc", task, node) % 6 == 0


def extender(session: Session, arguments: Arguments) -> None:
    """Asks the server at the points whose verbs are given, about pods that name a managed resource."""
    server = Server(session.cluster.all(KIND)[0])
    ignorable = arguments.boolean("extender.ignorable", False)
    managed = arguments.values.get("extender.managedResources") or []
    if arguments.text("extender.onSessionOpenVerb", "") and "onSessionOpen" in server.down and not ignorable:
        return

    def asked(verb: str) -> bool:
        return bool(arguments.text(f"extender.{verb}Verb", ""))

    def is_managed(task: Task) -> bool:
        found = {
            name
            for one in [*(task.spec.get("containers") or []), *(task.spec.get("initContainers") or [])]
            for part in ("requests", "limits")
            for name in (one.get("resources") or {}).get(part) or {}
        }
        return not managed or bool(found & set(managed))

    def predicate(task: Task, node: Node) -> list[str]:
        if not is_managed(task):
            return []
        if "predicate" in server.down:
            return [] if ignorable else ["the extender fails"]
        return ["the extender refuses"] if server.refuses(task.job, node.name, len(node.tasks)) else []

    def score(task: Task, nodes: list[Node]) -> dict[str, float]:
        if not is_managed(task) or "prioritize" in server.down:
            return {}
        return {node.name: float(server.points(task.job, node.name, len(node.tasks))) for node in nodes}

    def enqueueable(job: Job) -> int:
        if "jobEnqueueable" in server.down:
            return PERMIT if ignorable else REJECT
        return (REJECT, ABSTAIN, PERMIT)[server.vote(job.key) + 1]

    def overused(queue: Queue) -> bool:
        return not ignorable if "queueOverused" in server.down else server.overused(queue.name)

    def ready(job: Job) -> bool:
        return ignorable if "jobReady" in server.down else server.ready(job.key)

    def enqueued(job: Job) -> None:
        if "jobEnqueued" not in server.down:
            server.admitted += 1

    def victims(verb: str) -> Callable[[Task], Allowance | None]:
        """Whom it names; of a pod that it does not manage it says nothing."""

        def ask(asker: Task) -> Allowance | None:
            if not is_managed(asker):
                return None
            if verb in server.down:
                return Each(lambda _: False)
            if not server.has_a_say(verb, asker.key):
                return None
            return Each(lambda task: server.names(verb, asker.key, task.uid))

        return ask

    def forbids(task: Task) -> bool:
        if not asked("allocateFunc") or not is_managed(task):
            return False
        return not ignorable if "allocateFunc" in server.down else server.forbids(task.key, task.node)

    session.handlers.append((forbids, lambda task: None))
    for verb, point, function in (
        ("jobReady", "jobReady", ready),
        ("predicate", "predicate", predicate),
        ("prioritize", "nodeOrder", score),
        ("jobEnqueueable", "jobEnqueueable", enqueueable),
        ("queueOverused", "overused", overused),
        ("jobEnqueued", "jobEnqueued", enqueued),
        ("preemptable", "preemptable", victims("preemptable")),
        ("reclaimable", "reclaimable", victims("reclaimable")),
    ):
        if asked(verb):
            session.register(point, "extender", function)
