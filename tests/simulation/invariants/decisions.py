"""What sessions may decide, by what their replica knew when it logged them: added up from plain objects."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING

from tests.e2e.cluster import LEASES
from tests.laws.accounts import Accounts
from tests.reference.values import quantity
from tests.simulation.invariants.known import Known
from tests.simulation.invariants.namespaces import still_asked
from tests.simulation.invariants.quotas import Quotas
from tests.simulation.invariants.replacements import Replacements
from tests.simulation.invariants.witness import Operation, Witness
from tests.simulation.raising import is_of_plugin
from tests.simulation.replica import Machine
from vcd.daemon.service import SchedulerService
from vcd.model import events as ev
from vcd.model.objects import Pod, PodDisruptionBudget, ResourceQuota
from vcd.model.projection_codec import as_plain
from vcd.model.selectors import LabelSelector, SelectorError
from vcd.scheduling.framework.policy import PluginOption, Policy
from vcd.state.cluster_state import ClusterState
from vcd.state.records import GroupRecord

if TYPE_CHECKING:
    from tests.simulation.invariants.terms import Terms
    from tests.simulation.simulation import Simulation

CRITICAL = ("system-cluster-critical", "system-node-critical")
ADMITTING = {"capacity", "capacity-card", "extender", "overcommit", "proportion", "resourcequota", "sla"}
"""The plugins that vote on whether a group is admitted (docs/semantics/plugins.md)."""
SETTLING = 10.0
"""Seconds after which a budget's status shows that a pod is being deleted (docs/plugins/pdb.md)."""
QUOTA_FACTS = ("ResourceQuota", "PodGroup", "Pod")
"""The kinds from which the check of a namespace's quotas is computed."""
RELEASE = "release"
"""The action that evicts what is left of a gang that was let in only in part, whoever protects it."""


@dataclass(frozen=True)
class Decided:
    """How an operation was decided last: by which action and plugins, and until when all that happened was known. What
    failed, or was configured anew, since its program began is counted: then it may evict whom it did not."""

    action: str
    plugins: Mapping[str, PluginOption]
    known: float
    policy: str
    anew: int


class Decisions:
    """Looks at each session as it is about to be logged, when nothing of what it was held against can have changed.

    ``durable`` has the operations of sessions that are in a machine's log, by its name, and the last such session,
    ``decided`` how each was decided. ``to_go`` are the keys of pods that sessions evict, by UID.
    """

    def __init__(self, sim: Simulation, witness: Witness, terms: Terms, known: Known) -> None:
        self._sim, self._terms, self._known = sim, terms, known
        self.durable: dict[str, dict[Operation, int]] = defaultdict(dict)
        self.decided: dict[str, dict[Operation, Decided]] = defaultdict(dict)
        self.to_go: dict[str, str] = {}
        self.admitted: dict[tuple[str, str], float] = {}
        """Until when a machine knew all that admitted a group by its namespace's quotas, by both their names."""
        self._anew: Counter[str] = Counter()
        self._quota_facts: dict[str, dict[str, int]] = defaultdict(dict)
        """The last event about one of ``QUOTA_FACTS``, by machine and namespace."""
        self._replacements = Replacements(sim)
        self._queues: dict[str, dict[str, str]] = defaultdict(dict)
        """By machine the queue of each group that was there at some session: pods that outlive it count for that."""
        self.looks: list[Callable[[Machine, SchedulerService, ev.SessionDecided], None]] = []
        """Others that look at each session as it is about to be logged."""
        witness.services.append(self._watch)

    def _watch(self, machine: Machine, service: SchedulerService) -> None:
        put = service.state_writer.put_at_head

        async def watched(make: Callable[[], Sequence[ev.Event]]) -> int | None:
            def seen() -> Sequence[ev.Event]:
                events = make()
                for event in events:
                    if isinstance(event, ev.SessionDecided):
                        self._decided(machine, service, event)
                        for look in self.looks:
                            look(machine, service, event)
                return events

            return await put(seen)

        def folded(event: ev.Event) -> None:
            if isinstance(event, ev.PolicyLoaded):
                self._replacements.forget(machine)
            failed = isinstance(event, ev.OperationDone) and event.result not in ("done", "unknown")
            self._anew[machine.name] += failed or isinstance(event, ev.PolicyLoaded)
            if isinstance(event, ev.ObjectPut | ev.ObjectGone) and event.kind in QUOTA_FACTS:
                self._quota_facts[machine.name][event.key.partition("/")[0]] = service.state_writer.state.sequence
            if isinstance(event, ev.SessionDecided):
                self.durable[machine.name].update(dict.fromkeys(operations_of(event), event.session))

        service.state_writer.put_at_head = watched  # type: ignore[method-assign]
        service.state_writer.observers.append(folded)

    def _decided(self, machine: Machine, service: SchedulerService, event: ev.SessionDecided) -> None:
        holder = self._holder(service)
        if holder not in (service.options.identity, None) and not self._terms.may_still_write(machine.name):
            what = f"{machine.name}: session {event.session} of epoch {event.epoch}, while {holder!r} holds the Lease"
            self._sim.violated("decided by who leads", what)
        elif holder is not None and self._terms.is_over(machine.name):
            what = f"{machine.name}: session {event.session} of epoch {event.epoch}, after its term"
            self._sim.violated("decided by who leads", what)
        policy, state = service.policy.named(event.policy), service.state_writer.state
        plan = event.accepted()
        for fault in plan.faults:
            if fault not in event.interrupted and not is_of_plugin(fault):  # those took too long
                self._sim.violated("nothing fails unseen", f"{machine.name}, session {event.session}: {fault}")
        plugins = {option.name: option for tier in policy.tiers for option in tier}
        self._note(machine, event.policy, plan, plugins)
        accounts = Accounts(state)
        queues = self._queues[machine.name]
        queues.update({key: record.group.spec.queue for key, record in state.groups.items()})
        accounts.former = {**queues, **accounts.former}
        look = _Session(state, plugins, accounts, event.now / 1e9)
        found = list(self._replacements.seen(machine, state, event, accounts))
        found += [problem for statement in plan.statements for problem in look.problems(statement)]
        found += look.short_gangs()
        if "enqueue" in policy.actions and asks_quotas(policy):
            changed = {name for name, at in self._quota_facts[machine.name].items() if at > event.head}
            found += look.over_quota(plan.groups, changed)
            known = self._known.until(machine)
            self.admitted.update({(machine.name, key): known for key in look.admitted})
        for invariant, what in found:
            self._sim.violated(invariant, f"{machine.name}, session {event.session}: {what}")

    def _note(self, machine: Machine, policy: str, plan: ev.Plan, plugins: Mapping[str, PluginOption]) -> None:
        known, anew = self._known.until(machine), self._anew[machine.name]
        for statement in plan.statements:
            how = Decided(statement.action, plugins, known, policy, anew)
            for operation in statement.operations:
                self.decided[machine.name][operation_of(operation)] = how
                if operation.verb == "evict":
                    self.to_go[operation.uid] = operation.key

    def _holder(self, service: SchedulerService) -> str | None:
        """Who holds the Lease by the server's truth, "" for nobody; None where there is no election."""
        if not service.options.leader_elect:
            return None
        lease = self._sim.store.find(LEASES, service.options.lease_namespace, service.options.lease_name)
        return "" if lease is None else str(lease["spec"].get("holderIdentity") or "")


def asks_quotas(policy: Policy) -> bool:
    """Whether resourcequota is asked of each group: not where one of an earlier tier may admit it, which ends it."""
    for tier in policy.tiers:
        voters = {option.name for option in tier if option.enabled.get("enableJobEnqueued", True)} & ADMITTING
        if voters:
            return "resourcequota" in voters
    return False


def operations_of(event: ev.SessionDecided) -> set[Operation]:
    """What a session intends."""
    return {operation_of(each) for statement in event.accepted().statements for each in statement.operations}


def operation_of(each: ev.Operation) -> Operation:
    """An operation as the server is asked for it."""
    return each.verb, each.key, each.uid, each.node if each.verb == "bind" else ""


class _Session:
    """What a session decides, statement by statement."""

    def __init__(
        self, state: ClusterState, plugins: Mapping[str, PluginOption], accounts: Accounts, now: float
    ) -> None:
        self._state, self._plugins, self._accounts, self._now = state, plugins, accounts, now
        self._evicted = {key for key, intent in state.intents.items() if intent.verb == "evict"}
        self._bound: dict[str, list[str]] = defaultdict(list)
        """The pods that are bound of each group."""
        self._gone: Counter[str] = Counter()
        """How many pods went of each budget that was asked."""
        self.admitted: list[str] = []
        """The groups for which quotas were asked."""

    def problems(self, statement: ev.Statement) -> Iterable[tuple[str, str]]:
        binds = [operation for operation in statement.operations if operation.verb == "bind"]
        yield from self._misplaced(binds)
        self._accounts.bind(binds)
        self._evicted.update(operation.key for operation in statement.operations if operation.verb == "evict")
        yield from self._over(statement.group, [each.key for each in binds if each.key in self._accounts.pods])
        if statement.action == RELEASE:
            yield from self._released(statement.group)
            return
        for operation in statement.operations:
            if operation.verb == "evict" and (pod := self._accounts.pods.get(operation.key)) is not None:
                yield from self._protected(operation, pod)

    def _misplaced(self, binds: list[ev.Operation]) -> Iterable[tuple[str, str]]:
        for bind in binds:
            pod = self._accounts.pods.get(bind.key)
            if pod is None or pod.metadata.uid != bind.uid:
                yield "bound there", f"{bind.key} {bind.uid} is not there"
            elif self._accounts.node_of[bind.key]:
                yield "bound once", f"{bind.key} is on {self._accounts.node_of[bind.key]} already"
            if bind.node not in self._accounts.nodes:
                yield "bound there", f"{bind.key} to {bind.node}, which is not there"

    def _over(self, group: str, bound: list[str]) -> Iterable[tuple[str, str]]:
        accounts = self._accounts
        for node in sorted({accounts.node_of[key] for key in bound} & accounts.nodes.keys()):
            here = [key for key in bound if accounts.node_of[key] == node]
            if over := accounts.over_on(node, here):
                yield "no node over", f"{node} has too little {over} for {here}"
        self._bound[group] += bound
        yield from Quotas(accounts, self._plugins, self._evicted).over(bound)

    def short_gangs(self) -> Iterable[tuple[str, str]]:
        """Yield the gangs that lack their minimum with all that the session binds."""
        for group, bound in self._bound.items():
            is_gang = "gang" in self._plugins and group in self._accounts.groups
            if bound and is_gang and (short := self._accounts.short_of(group)) > 0:
                yield "gangs whole", f"{group} is {short} short with {bound}"

    def _released(self, group: str) -> Iterable[tuple[str, str]]:
        """A gang goes for want of its minimum only, and only where somebody asks for minima."""
        record = self._accounts.groups.get(group)
        if "gang" not in self._plugins:
            yield "gangs whole", f"{group} is released, and nobody asks for minima"
        elif record is not None and not record.group.spec.min_task_member and self._accounts.short_of(group) <= 0:
            yield "gangs whole", f"{group} is released, and has its minimum"

    # --- evictions ----------------------------------------------------------------------------------------------------

    def _protected(self, operation: ev.Operation, pod: Pod) -> Iterable[tuple[str, str]]:
        yield from protection(pod, self._plugins)
        if "pdb" in self._plugins:
            yield from self._beyond_budgets(operation.key, pod)

    def _beyond_budgets(self, key: str, pod: Pod) -> Iterable[tuple[str, str]]:
        for name, budget in sorted(self._state.others.get("PodDisruptionBudget", {}).items()):
            assert isinstance(budget, PodDisruptionBudget)
            if not selects(budget, pod) or pod.metadata.name in budget.status.disrupted_pods:
                continue
            if name not in self._gone:
                self._gone[name] = sum(self._is_going(other, budget) for other in sorted(self._accounts.pods))
            self._gone[name] += 1
            if self._gone[name] > max(0, budget.status.disruptions_allowed):
                allowed = budget.status.disruptions_allowed
                yield "no budget overspent", f"{key}: {name} allows {allowed}, and {self._gone[name]} go"

    def _is_going(self, key: str, budget: PodDisruptionBudget) -> bool:
        """Whether a pod was evicted, and its budget may not show that yet."""
        pod, intent = self._accounts.pods[key], self._state.intents.get(key)
        if not selects(budget, pod) or pod.metadata.name in budget.status.disrupted_pods:
            return False
        evicted = intent is not None and intent.verb == "evict"
        return evicted or (bool(self._accounts.node_of[key]) and self._now < _asked_to_go(pod) + SETTLING)

    # --- quotas -------------------------------------------------------------------------------------------------------

    def over_quota(self, groups: Iterable[ev.GroupStatus], changed: set[str]) -> Iterable[tuple[str, str]]:
        """Yield the ResourceQuotas that the minima of the admitted groups exceed, except in the ``changed`` namespaces:
        the state after the session's head is not what the session decided by."""
        admitted: list[GroupRecord] = []
        for status in groups:
            record = self._state.groups.get(status.key)
            if record is None or status.phase != "Inqueue" or record.group.status.phase not in ("", "Pending"):
                continue
            if self._accounts.is_too_large(status.key):
                continue  # it can use nothing of what it is admitted for (docs/differences.md)
            admitted.append(record)
        self.admitted += [record.group.key for record in admitted]
        for quota in self._state.others.get("ResourceQuota", {}).values():
            assert isinstance(quota, ResourceQuota)
            if quota.metadata.namespace not in changed:
                there = [one for one in admitted if one.group.metadata.namespace == quota.metadata.namespace]
                yield from self._over_one(quota, there)

    def _over_one(self, quota: ResourceQuota, admitted: Iterable[GroupRecord]) -> Iterator[tuple[str, str]]:
        hard, used, wanted = quota.status.hard, quota.status.used, defaultdict[str, Fraction](Fraction)
        for record in admitted:
            pods = [pod for key, pod in self._accounts.pods.items() if self._accounts.group_of(key) == record.group.key]
            minimum = record.group.spec.min_resources
            for name, amount in still_asked(minimum, [as_plain(pod) for pod in pods], used).items():
                wanted[name] += amount
        for name, asked in sorted(wanted.items()):
            if name in hard and quantity(used.get(name, 0)) + asked > quantity(hard[name]):
                what = f"{quota.key} allows {hard[name]} {name}, {used.get(name, 0)} used, {asked} more admitted"
                yield "no namespace over", what


def protection(pod: Pod, plugins: Mapping[str, PluginOption]) -> Iterable[tuple[str, str]]:
    """Why a pod may not be evicted by such plugins, whatever for."""
    critical = pod.metadata.namespace == "kube-system" or pod.spec.priority_class_name in CRITICAL
    if critical and "conformance" in plugins:
        yield "no protected pod evicted", f"{pod.key} is the system's"
    said = {**pod.metadata.labels, **pod.metadata.annotations}.get("volcano.sh/preemptable")
    if said == "false":
        yield "no protected pod evicted", f"{pod.key} says that it is not preemptable"


def selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """An empty selector selects nothing here, as in Volcano; nor does one that cannot be read."""
    try:
        selector = LabelSelector.compile(budget.spec.selector)
    except SelectorError:
        return False
    same = budget.metadata.namespace == pod.metadata.namespace
    return same and bool(selector.requirements) and selector.matches(pod.metadata.labels)


def _asked_to_go(pod: Pod) -> float:
    """When somebody deleted a pod, in seconds since the epoch; long ago for one that stays, or has ended."""
    until, grace = pod.metadata.deletion_timestamp, pod.spec.termination_grace_period_seconds
    if not until or pod.status.phase in ("Succeeded", "Failed"):
        return 0.0
    return datetime.fromisoformat(until.replace("Z", "+00:00")).timestamp() - (30 if grace is None else grace)
