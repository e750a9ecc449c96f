"""Planted bugs of vcd/scheduling: actions, plugins, tables of candidates, statements."""

from __future__ import annotations

import random
from typing import Any

from tests.simulation.mutants import replaces
from vcd.model.objects import PodSpec
from vcd.scheduling.actions.preempt import PreemptAction
from vcd.scheduling.eviction.budgets import Disruptions
from vcd.scheduling.framework.framework import Framework
from vcd.scheduling.framework.victims import victim_rule
from vcd.scheduling.partial_gangs import release
from vcd.scheduling.plugins.capacity_card.card_account import CardAccount
from vcd.scheduling.plugins.capacity_card.card_requests import CardDemand
from vcd.scheduling.plugins.conformance import SYSTEM_CLASSES, SYSTEM_NAMESPACE, ConformancePlugin
from vcd.scheduling.plugins.deviceshare.gpushare import indexed_requests
from vcd.scheduling.plugins.deviceshare.shared_cards import Request
from vcd.scheduling.plugins.gang import GangPlugin
from vcd.scheduling.plugins.resourcequota import ResourceQuotaPlugin
from vcd.scheduling.search.candidates import Candidates, Evaluator, Memory
from vcd.scheduling.session.nodes import Ints, Nodes
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job, Task

# --- gangs ----------------------------------------------------------------------------------------------------------

_preempt_jobs = PreemptAction._preempt_jobs


@replaces(GangPlugin.job_ready, found_by="gangs whole")
def gang_committed_half(self: GangPlugin, job: Job) -> bool:
    """A gang that fits only in part is bound in part, and holds its resources while it waits for the rest."""
    return True


@replaces(release, found_by="gangs whole")
def gang_never_released(framework: Framework) -> None:
    """A gang that was admitted only in part keeps its part for ever."""


@replaces(PreemptAction._preempt_jobs, found_by="all that can be is done")
def no_room_made_for_gangs(self: PreemptAction, framework: Framework, job: Job) -> None:
    """A gang that misses two pods or more waits behind pods of lower priority: nothing is preempted for it."""
    if framework.missing_tasks(job) < 2:
        _preempt_jobs(self, framework, job)


# --- nodes and candidates -------------------------------------------------------------------------------------------

_open, _put = Memory.open, Candidates._put


@replaces(Candidates._first, found_by="replay")
def chance_in_a_decision(self: Candidates, rows: Ints) -> int:
    """Chance decides between equal nodes, and a replay takes another one."""
    return int(rows[0] if len(rows) == 1 else random.choice(rows))


@replaces(Memory.open, found_by="all that can be is done")
def tables_outlive_what_nodes_say(self: Memory, evaluator: Evaluator) -> int:
    """Labels, taints and cordons are read again only when nodes come or go: a pod waits for a node that fits now."""
    if self._nodes is not None and len(self._nodes) == len(evaluator.nodes):
        self._facts = evaluator.nodes.facts
    return _open(self, evaluator)


@replaces(Candidates._put, found_by="all that can be is done")
def failed_shapes_never_tried_again(self: Candidates, rows: Any, keys: Any) -> None:
    """A kind of pod that once found no node never finds one again, whatever is free since."""
    if self._keys is not self._evaluator.memory.nowhere:
        _put(self, rows, keys)


@replaces(Nodes.has_room, found_by="no node over")
def releasing_counts_as_free(self: Nodes, row: int, floor: Ints) -> bool:
    """Resources of terminating pods are given away before the pods are gone."""
    return self.will_have_room(row, floor)


@replaces(Session.pending_rows_of, found_by="replay")
def nominated_by_arrival(self: Session, keys: Any) -> list[int]:
    """Extenders are called for pods in the order of arrival: a replay, or a restart, decides otherwise."""
    names = self.snapshot.tasks.keys
    return [row for row in self.views.pending.rows.tolist() if names[row] in keys]


# --- victims --------------------------------------------------------------------------------------------------------


@replaces(ConformancePlugin.preemptable, found_by="no protected pod evicted")
@victim_rule("all tasks except protected ones")
def protected_pods_evicted(self: ConformancePlugin, preemptor: object, tasks: list[Task]) -> list[Task]:
    """Pods that the system needs are evicted for a user's job."""
    return [
        task
        for task in tasks
        if task.namespace != SYSTEM_NAMESPACE or task.shape.spec.priority_class_name not in SYSTEM_CLASSES
    ]


@replaces(Disruptions.permits, found_by="no budget overspent")
def budgets_ignored(self: Disruptions, task: Task) -> bool:
    """More pods of a service are evicted than its disruption budget allows."""
    return True


# --- queues and quotas ----------------------------------------------------------------------------------------------

_indexed_requests = indexed_requests


@replaces(CardAccount.affords, found_by="no card quota over")
def card_quota_by_the_card(self: CardAccount, demand: CardDemand) -> bool:
    """A queue that has one card of its quota left gets as many as it requests."""
    return any(self.left(card) > 0 for card in demand.names)


@replaces(indexed_requests, found_by="no card shared")
def cards_not_alone(spec: PodSpec, *, by_number: bool) -> tuple[Request, ...] | str:
    """A pod that requested whole cards shares them with another one, and both run out of memory."""
    found = _indexed_requests(spec, by_number=by_number)
    return found if isinstance(found, str) else tuple(each._replace(alone=False) for each in found)


@replaces(ResourceQuotaPlugin.job_enqueued, found_by="no namespace over")
def admitted_not_counted(self: ResourceQuotaPlugin, job: Job) -> None:
    """Groups that each fit a namespace's quota are admitted together, and their pods are refused one by one."""
