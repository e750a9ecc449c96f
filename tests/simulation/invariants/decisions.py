"""What sessions may decide, by what their replica knew when it logged them: added up from plain objects."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tests.laws.accounts import Accounts
from tests.reference.values import quantity
from tests.simulation.invariants.witness import Witness
from tests.simulation.replica import Machine
from vcd.daemon.service import SchedulerService
from vcd.model import events as ev
from vcd.model.objects import Pod, PodDisruptionBudget, ResourceQuota
from vcd.model.selectors import LabelSelector, SelectorError
from vcd.scheduling.framework.policy import Policy
from vcd.state.cluster import ClusterState

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

CRITICAL = ("system-cluster-critical", "system-node-critical")
ADMITTING = {"capacity", "capacity-card", "extender", "overcommit", "proportion", "resourcequota", "sla"}
"""The plugins that vote on whether a group is admitted (docs/semantics/plugins.md)."""
RELEASE = "release"
"""The action that evicts what is left of a gang that was let in only in part, whoever protects it."""


class Decisions:
    """Looks at each session as it is about to be logged, when nothing of what it was held against can have changed.

    ``durable`` has the operations of sessions that are in a machine's log, by its name, and the last such session.
    """

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim = sim
        self.durable: dict[str, dict[tuple[str, str, str, str], int]] = defaultdict(dict)
        self.policies: dict[str, str] = {}
        """The digest of the configuration that a machine decided by last."""
        witness.services.append(self._watch)

    def _watch(self, machine: Machine, service: SchedulerService) -> None:
        put = service.keeper.put

        async def watched(events: Iterable[ev.Event]) -> None:
            events = list(events)
            for event in events:
                if isinstance(event, ev.SessionDecided):
                    self._decided(machine, service, event)
            await put(events)

        def folded(event: ev.Event) -> None:
            if isinstance(event, ev.SessionDecided):
                self.durable[machine.name].update(dict.fromkeys(operations_of(event), event.session))

        service.keeper.put = watched  # type: ignore[method-assign]
        service.keeper.observers.append(folded)

    def _decided(self, machine: Machine, service: SchedulerService, event: ev.SessionDecided) -> None:
        policy, state = service.policy.named(event.policy), service.keeper.state
        self.policies[machine.name] = event.policy
        plan = event.accepted()
        plugins = {option.name for tier in policy.tiers for option in tier}
        look = _Session(state, plugins, Accounts(state))
        found = [problem for statement in plan.statements for problem in look.problems(statement)]
        if "enqueue" in policy.actions and asks_quotas(policy):
            found += look.over_quota(plan.groups)
        for invariant, what in found:
            self._sim.violated(invariant, f"{machine.name}, session {event.session}: {what}")


def asks_quotas(policy: Policy) -> bool:
    """Whether resourcequota is asked of each group: not where one of an earlier tier may admit it, which ends it."""
    for tier in policy.tiers:
        voters = {option.name for option in tier if option.enabled.get("enableJobEnqueued", True)} & ADMITTING
        if voters:
            return "resourcequota" in voters
    return False


def operations_of(event: ev.SessionDecided) -> set[tuple[str, str, str, str]]:
    """Verb, key, UID and node (of binds) of what a session intends."""
    found = [operation for statement in event.accepted().statements for operation in statement.operations]
    return {(each.verb, each.key, each.uid, each.node if each.verb == "bind" else "") for each in found}


class _Session:
    """What a session decides, statement by statement."""

    def __init__(self, state: ClusterState, plugins: set[str], accounts: Accounts) -> None:
        self._state, self._plugins, self._accounts = state, plugins, accounts
        self._gone: Counter[str] = Counter()
        """How many pods went of each budget that was asked."""

    def problems(self, statement: ev.Statement) -> Iterable[tuple[str, str]]:
        binds = [operation for operation in statement.operations if operation.verb == "bind"]
        yield from self._misplaced(binds)
        self._accounts.bind(binds)
        yield from self._over(statement.group, [each.key for each in binds if each.key in self._accounts.pods])
        if statement.action != RELEASE:
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
        if bound and "gang" in self._plugins and group in accounts.groups and accounts.short_of(group) > 0:
            yield "gangs whole", f"{group} is {accounts.short_of(group)} short with {bound}"
        if {"capacity", "proportion"} & self._plugins:
            for queue in sorted({accounts.queue_of(key) for key in bound} & accounts.queues.keys()):
                if over := accounts.above_capability(queue, bound):
                    yield "no queue over", f"{queue} has too little {over} for {bound}"

    # --- evictions ----------------------------------------------------------------------------------------------------

    def _protected(self, operation: ev.Operation, pod: Pod) -> Iterable[tuple[str, str]]:
        critical = pod.metadata.namespace == "kube-system" or pod.spec.priority_class_name in CRITICAL
        if critical and "conformance" in self._plugins:
            yield "no protected pod evicted", f"{operation.key} is the system's"
        said = {**pod.metadata.labels, **pod.metadata.annotations}.get("volcano.sh/preemptable")
        if said == "false":
            yield "no protected pod evicted", f"{operation.key} says that it is not preemptable"
        if "pdb" in self._plugins:
            yield from self._beyond_budgets(operation.key, pod)

    def _beyond_budgets(self, key: str, pod: Pod) -> Iterable[tuple[str, str]]:
        for name, budget in sorted(self._state.others.get("PodDisruptionBudget", {}).items()):
            assert isinstance(budget, PodDisruptionBudget)
            if not _selects(budget, pod) or pod.metadata.name in budget.status.disrupted_pods:
                continue
            if name not in self._gone:
                self._gone[name] = sum(self._is_going(other, budget) for other in sorted(self._state.intents))
            self._gone[name] += 1
            if self._gone[name] > max(0, budget.status.disruptions_allowed):
                allowed = budget.status.disruptions_allowed
                yield "no budget overspent", f"{key}: {name} allows {allowed}, and {self._gone[name]} go"

    def _is_going(self, key: str, budget: PodDisruptionBudget) -> bool:
        pod = self._accounts.pods.get(key)
        if pod is None or self._state.intents[key].verb != "evict" or not _selects(budget, pod):
            return False
        return pod.metadata.name not in budget.status.disrupted_pods

    # --- quotas -------------------------------------------------------------------------------------------------------

    def over_quota(self, groups: Iterable[ev.GroupStatus]) -> Iterable[tuple[str, str]]:
        """Namespaces whose ResourceQuotas have no room for the minima of the groups that are admitted."""
        wanted: dict[str, Counter[str]] = defaultdict(Counter)
        for status in groups:
            record = self._state.groups.get(status.key)
            if record is None or status.phase != "Inqueue" or record.group.status.phase not in ("", "Pending"):
                continue
            for name, text in (record.group.spec.min_resources or {}).items():
                wanted[status.key.partition("/")[0]][name] += quantity(text)  # type: ignore[assignment]
        for quota in self._state.others.get("ResourceQuota", {}).values():
            assert isinstance(quota, ResourceQuota)
            for name, asked in sorted(wanted[quota.metadata.namespace].items()):
                limit, used = quota.status.hard.get(name), quota.status.used.get(name, 0)
                if limit is not None and quantity(used) + asked > quantity(limit):
                    yield "no namespace over", f"{quota.key} allows {limit} {name}, {used} used, {asked} admitted"


def _selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """An empty selector selects nothing here, as in Volcano; nor does one that cannot be read."""
    try:
        selector = LabelSelector.compile(budget.spec.selector)
    except SelectorError:
        return False
    same = budget.metadata.namespace == pod.metadata.namespace
    return same and bool(selector.requirements) and selector.matches(pod.metadata.labels)
