"""Random small clusters whose pods have terms, constraints and ports, driven in step with the slow reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.dsl import Manifest, node, pod, session_of
from tests.reasons import by_words
from tests.reference import model
from tests.reference.predicates import Reason
from vcd.scheduling.framework.rules import Participants, consent
from vcd.scheduling.search.parts import Predicate, Score
from vcd.scheduling.search.podindex import PodIndex, index_of
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Hooks, Statement
from vcd.scheduling.session.views import Task

Reasoner = Callable[[model.Task, model.Node], Reason | None]

Scorer = Callable[[Any, model.Task, list[model.Node]], dict[str, int]]
SpecOf = Callable[[Random], Manifest]

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
KEYS = ("kubernetes.io/hostname", "zone", "rack")
APPS = ("web", "db", "cache")


def following(index: PodIndex) -> Hooks:
    """Statements tell an index what moves, as they tell plugins."""

    def placed(tasks: list[Task], rows: list[int]) -> None:
        index.move(tasks, rows, 1)

    return Hooks(consent(Participants("on_allocate", [[placed]], [])), lambda tasks, rows: index.move(tasks, rows, -1))


class Twins:
    """A session of the fast core, and the reference's cluster, changed alike."""

    def __init__(self, random: Random, objects: list[Manifest]) -> None:
        self.random = random
        self.session = session_of(*objects)
        index = index_of(self.session)
        self.session.trial.hooks = following(index)
        self.cluster = model.build(objects)
        self.slow: Any = SimpleNamespace(cluster=self.cluster)
        self.tasks = tasks_of(self.session)
        self.names = self.session.nodes.facts.names
        self._undo: list[tuple[Statement, Task, int, bool]] = []

    @classmethod
    def of(cls, seed: int, spec_of: SpecOf) -> Twins:
        """Twins over the random cluster of a seed."""
        random = Random(seed)
        return cls(random, random_cluster(random, spec_of))

    def step(self) -> None:
        """Place, evict, or take back something."""
        task = self.random.choice(list(self.tasks.values()))
        statement = Statement(self.session.trial, "test", task.job)
        busy = any(task is one for _, one, _, _ in self._undo)
        if self._undo and self.random.random() < 0.35:
            statement, task, row, came = self._undo.pop(self.random.randrange(len(self._undo)))
            statement.discard()
            self._follow(task, row, not came)
        elif task.node < 0 and not busy and task.status == 0:
            row = self.random.randrange(len(self.names))
            self.random.choice((statement.allocate, statement.pipeline))([task], [row])
            self._undo.append((statement, task, row, True))
            self._follow(task, row, True)
        elif not busy and task.key in self._on(task.node):
            statement.evict(task, "test")
            self._undo.append((statement, task, task.node, False))
            self._follow(task, task.node, False)

    def _on(self, row: int) -> dict[str, Any]:
        return self.cluster.nodes[self.names[row]].tasks if row >= 0 else {}

    def _follow(self, task: Task, row: int, came: bool) -> None:
        place, other = self.cluster.nodes[self.names[row]], self.cluster.tasks[task.key]
        (place.add if came else place.remove)(other)

    def pairs(self) -> list[tuple[Task, model.Task]]:
        """Pods that are nowhere, of both."""
        return [(task, self.cluster.tasks[key]) for key, task in self.tasks.items() if task.node < 0]

    def nodes(self) -> list[model.Node]:
        """The reference's nodes in the order of rows."""
        return [self.cluster.nodes[name] for name in self.names]


def check_against_reference(twins: Twins, predicate: Predicate, reason_of: Reasoner, steps: int = 12) -> None:
    """After random placements and reverses the predicate passes and explains each node as the reference does.

    Some pods are asked about early, some only after much has changed.
    """
    usage = twins.session.nodes.usage
    for _ in range(steps):
        twins.step()
        pairs = twins.pairs() if twins.random.random() < 0.5 else []
        for task, other in twins.random.sample(pairs, twins.random.randint(0, len(pairs))):
            expected = [reason_of(other, place) for place in twins.nodes()]
            mask = predicate.mask(task, usage)
            assert mask.tolist() == [reason is None for reason in expected]
            reasons = Counter(by_words(predicate.reasons(task, usage, ~mask)))
            assert reasons == Counter(reason[1] for reason in expected if reason)
            assert mask.all() or predicate.applies(task)


def check_score_against_reference(twins: Twins, score: Score, scores_of: Scorer, steps: int = 12) -> None:
    """After random placements and reverses the score rates random sets of feasible nodes as the reference does."""
    usage = twins.session.nodes.usage
    for _ in range(steps):
        twins.step()
        pairs = twins.pairs() if twins.random.random() < 0.5 else []
        for task, other in twins.random.sample(pairs, twins.random.randint(0, len(pairs))):
            nodes = twins.nodes()
            feasible = np.array([twins.random.random() < 0.75 for _ in nodes], np.bool_)
            chosen = [place for place, good in zip(nodes, feasible, strict=True) if good]
            expected = scores_of(twins.slow, other, chosen) if chosen else {}
            found = score.normalise(score.raw(task, usage), feasible)[feasible] if score.applies(task) else None
            assert (found is None and not any(expected.values())) or (
                found is not None and found.tolist() == [expected.get(place.name, 0) for place in chosen]
            )


def tasks_of(session: Session) -> dict[str, Task]:
    """All tasks by key."""
    return {task.key: task for job in session.all_jobs() for task in job.tasks()}


def random_cluster(random: Random, spec_of: SpecOf) -> list[Manifest]:
    """Nodes, namespaces (not all known to the API) and pods, whose specs ``spec_of`` draws."""
    objects: list[Manifest] = []
    for number in range(random.randint(1, 6)):
        labels = {key: random.choice("abc") for key in KEYS[1:] if random.random() < 0.8}
        effects = [effect for effect in ("NoSchedule", "PreferNoSchedule") if random.random() < 0.2]
        taints = [{"key": "dedicated", "value": "x", "effect": effect} for effect in effects]
        objects.append(node(f"n{number}", labels=labels, taints=taints, pods=110))
    names = [entry["metadata"]["name"] for entry in objects]
    objects.extend(
        {"kind": "Namespace", "metadata": {"name": name, "labels": {"team": random.choice("ab")}}}
        for name in ("one", "two")
        if random.random() < 0.7
    )
    for number in range(random.randint(2, 14)):
        on = random.choice([*names, "", "", "elsewhere"])
        phase = random.choice(("Running", "Running", "Running", "Succeeded", "Unknown", "Pending")) if on else ""
        objects.append(
            pod(
                f"p{number}",
                on=on,
                phase=phase,
                namespace=random.choice(("one", "one", "one", "two", "three")),
                labels=random_labels(random),
                deleting=random.random() < 0.2,
                spec=spec_of(random),
                cpu="10m",
            )
        )
    return objects


def random_labels(random: Random) -> dict[str, str]:
    """Labels that selectors of this module look at."""
    labels = {"app": random.choice(APPS), "tier": random.choice("xy"), "version": random.choice("12")}
    return {key: value for key, value in labels.items() if random.random() < 0.85}


def random_selector(random: Random) -> Manifest | None:
    """A label selector: none, empty, by labels, by expressions."""
    kind = random.randrange(6)
    if kind == 0:
        return random.choice((None, {}))
    selector: Manifest = {"matchLabels": {"app": random.choice(APPS)}} if kind < 5 else {}
    if kind >= 3:
        operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        values = random.sample("xy", random.randint(1, 2)) if operator in ("In", "NotIn") else []
        selector["matchExpressions"] = [{"key": "tier", "operator": operator, "values": values}]
    return selector


def random_keys(random: Random) -> list[str]:
    """For matchLabelKeys."""
    return [random.choice(("version", "tier"))] if random.random() < 0.2 else []


def without_nones(manifest: Manifest) -> Manifest:
    """A manifest without the fields that are None."""
    return {key: value for key, value in manifest.items() if value is not None}


def random_term(random: Random) -> Manifest:
    """A pod affinity term."""
    return without_nones(
        {
            "topologyKey": random.choice(KEYS),
            "labelSelector": random_selector(random),
            "namespaces": random.sample(("one", "two", "three", "nowhere"), random.choice((0, 0, 0, 1, 2))),
            "namespaceSelector": random.choice(
                (None, None, None, {}, {"matchLabels": {"team": "a"}}, {"matchLabels": {"team": "b"}})
            ),
            "matchLabelKeys": random_keys(random),
            "mismatchLabelKeys": random_keys(random),
        }
    )


def random_affinity(random: Random) -> Manifest:
    """A spec with required and preferred terms of both kinds, or without."""
    affinity = {}
    for kind in ("podAffinity", "podAntiAffinity"):
        hard = [random_term(random) for _ in range(random.choice((0, 0, 1, 2)))]
        soft = [
            {"weight": random.randint(1, 100), "podAffinityTerm": random_term(random)}
            for _ in range(random.choice((0, 0, 1, 2)))
        ]
        affinity[kind] = {
            "requiredDuringSchedulingIgnoredDuringExecution": hard,
            "preferredDuringSchedulingIgnoredDuringExecution": soft,
        }
    return {"affinity": affinity} if random.random() < 0.7 else {}


def random_spread(random: Random) -> Manifest:
    """A spec with spread constraints of both kinds, node selector, node affinity and tolerations, or without."""
    constraints = [
        without_nones(
            {
                "maxSkew": random.randint(1, 2),
                "topologyKey": random.choice(KEYS),
                "whenUnsatisfiable": random.choice(("DoNotSchedule", "ScheduleAnyway")),
                "labelSelector": random_selector(random),
                "minDomains": random.choice((None, None, 1, 2, 3)),
                "nodeAffinityPolicy": random.choice((None, "Honor", "Ignore")),
                "nodeTaintsPolicy": random.choice((None, "Honor", "Ignore")),
                "matchLabelKeys": random_keys(random),
            }
        )
        for _ in range(random.choice((0, 1, 2, 3)))
    ]
    spec: Manifest = {"topologySpreadConstraints": constraints}
    if random.random() < 0.3:
        spec["nodeSelector"] = {"zone": random.choice("ab")}
    if random.random() < 0.3:
        terms = [{"matchExpressions": [{"key": "rack", "operator": "In", "values": random.sample("abc", 2)}]}]
        required = {"nodeSelectorTerms": terms}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if random.random() < 0.3:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    return spec


def random_ports(random: Random) -> Manifest:
    """A spec with host ports, also of init containers of both kinds, or without."""

    def ports() -> list[Manifest]:
        return [
            without_nones(
                {
                    "containerPort": 80,
                    "hostPort": random.choice((0, 80, 81)),
                    "protocol": random.choice((None, "TCP", "UDP")),
                    "hostIP": random.choice((None, "", "0.0.0.0", "127.0.0.1", "10.0.0.1")),
                }
            )
            for _ in range(random.randint(0, 2))
        ]

    return {
        "containers": [{"name": "c", "ports": ports()}],
        "initContainers": [
            without_nones({"name": "i", "restartPolicy": random.choice((None, "Always")), "ports": ports()})
        ],
    }
