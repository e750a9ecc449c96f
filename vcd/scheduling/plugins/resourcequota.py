"""resourcequota: admit groups only if they fit in their namespace's ResourceQuotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from vcd.model.events import Waiting
from vcd.model.objects import Quantities, ResourceQuota
from vcd.model.podquotas import is_in_scope, usage_of_quota
from vcd.model.quantity import QuantityError, add, parse_milli, parse_units, per_unit
from vcd.model.reasons import Amount, Cause, Reason, ReasonCode, is_bytes
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.framework.quotas import QueueLimit
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Job

_UNREADABLE = ReasonCode("namespace-quota-unreadable", Cause.NAMESPACE_QUOTA, "resource quota cannot be compared")
_INSUFFICIENT = ReasonCode(
    "namespace-quota", Cause.NAMESPACE_QUOTA, "resource quota insufficient", field="spec.hard.{resource}"
)

Thousandths = dict[str, int]
"""Quantities by resource name as in the quota (``requests.cpu``), in thousandths of a unit, also for bytes."""


class ResourceQuotaPlugin(Plugin):
    """Admit a group if it fits in each ResourceQuota of its namespace: used + admitted + still requested <= hard.

    Admitted counts the groups admitted in this session. A group still requests its minResources less the usage of its
    own pods, because the API server counted these pods in `used` when it admitted them. Pods that have ended, and pods
    outside the quota's scopes, are not in `used`. If `used` lags behind the pods, no more than `used` is subtracted.

    Names are compared as written: a limit on `requests.cpu` applies to groups whose minResources list `requests.cpu`,
    as Volcano's job controller writes them, and not to `cpu`. Resources without a limit, and groups without
    minResources, are not limited. Scopes do not exempt a group from a quota. Hard and used come from the quota's
    status. A group that requests a resource with an unreadable limit waits. Source: Volcano ``plugins/resourcequota``.
    """

    name = "resourcequota"
    keys = ()
    kinds = ("ResourceQuota",)

    def open(self, session: Session) -> None:
        self._session = session
        self._quotas: dict[str, list[ResourceQuota]] = {}
        quotas = session.snapshot.others.get("ResourceQuota", {})
        for _, quota in sorted(quotas.items()):
            if isinstance(quota, ResourceQuota):
                self._quotas.setdefault(quota.metadata.namespace, []).append(quota)
        self._admitted: dict[str, Thousandths] = {}
        self._usage: dict[int, Thousandths] = {}

    def job_enqueueable(self, job: Job) -> Vote | Reason:
        """Permit if all quotas of the namespace have capacity for what the group still requests."""
        wanted = job.record.group.spec.min_resources
        if wanted is None:
            return Vote.PERMIT
        for quota in self._quotas.get(job.namespace, ()):
            refusal = self._refusal(quota, wanted, job)
            if refusal is not None:
                return refusal
        return Vote.PERMIT

    def job_enqueued(self, job: Job) -> None:
        """Count what an admitted group still requests: `used` includes it only after its pods are created."""
        wanted = job.record.group.spec.min_resources
        if wanted is None or self._session.jobs.too_large[job.index]:
            return
        for quota in self._quotas.get(job.namespace, ()):
            admitted = self._admitted.setdefault(quota.key, {})
            own = self._own_usage(quota, job)
            for name in (name for name in wanted if name in quota.status.hard):
                try:
                    requested = _still_requested(wanted, quota, own, name)
                except QuantityError:
                    continue  # possible only if another plugin admitted the group
                admitted[name] = admitted.get(name, 0) + requested

    @classmethod
    def limits_of_reason(cls, reason: Waiting) -> Iterable[QueueLimit]:
        """Return nothing: the plugin enforces limits of namespaces, not of queues."""
        return ()

    def _refusal(self, quota: ResourceQuota, wanted: Quantities, job: Job) -> Reason | None:
        admitted, own = self._admitted.get(quota.key, {}), self._own_usage(quota, job)
        hard, amounts = quota.status.hard, list[Amount]()
        for name in sorted(wanted.keys() & hard.keys()):
            before = admitted.get(name, 0)
            try:
                requested = _still_requested(wanted, quota, own, name)
                limit = _read(f"status.hard.{name} of the quota", hard[name])
                have = _used(quota, name)
            except QuantityError as error:
                return _UNREADABLE({"quota": quota.key, "error": str(error)})
            if have + before + requested > limit:
                quantities = {"asks": requested, "used": have, "admitted": before, "limit": limit}
                amounts += [(role, name, _base_units(name, amount)) for role, amount in quantities.items()]
        return _INSUFFICIENT({"quota": quota.key}, amounts) if amounts else None

    def _own_usage(self, quota: ResourceQuota, job: Job) -> Thousandths:
        """Return the usage of a quota by the group's pods that have not ended."""
        tasks, shapes = self._session.snapshot.tasks, self._session.snapshot.shapes
        counts = Counter(tasks.shape.item(row) for row in self._session.jobs.rows_of(job.index) if tasks.alive[row])
        total: Thousandths = {}
        for number, pods in sorted(counts.items()):
            shape = shapes[number]
            if shape is None or not is_in_scope(quota.spec, shape.spec):
                continue
            if number not in self._usage:
                usage = usage_of_quota(shape.spec)
                self._usage[number] = {name: _thousandths(text) for name, text in usage.items()}
            add(total, {name: amount * pods for name, amount in self._usage[number].items()})
        return total


def _still_requested(wanted: Quantities, quota: ResourceQuota, own: Thousandths, name: str) -> int:
    """Return the part of a group's minimum that is not in `used` yet. Raises QuantityError."""
    requested = _read(f"minResources.{name} of the group", wanted[name])
    counted = min(own.get(name, 0), _used(quota, name))
    return max(requested - counted, 0)


def _used(quota: ResourceQuota, name: str) -> int:
    return _read(f"status.used.{name} of the quota", quota.status.used.get(name, 0))


def _thousandths(text: str | int | float) -> int:
    """Parse a quantity of any size into thousandths. Raises QuantityError."""
    try:
        return parse_milli(text)
    except QuantityError:
        return parse_units(text) * 1000  # in thousandths, petabytes exceed int64


def _read(field: str, text: str | int | float) -> int:
    try:
        return _thousandths(text)
    except QuantityError as error:
        raise QuantityError(f"{field}: {error}") from None


def _base_units(name: str, amount: int) -> int:
    """Convert thousandths to the units of reasons: whole bytes and pods, thousandths of everything else."""
    return amount // 1000 if is_bytes(name) or per_unit(name) == 1 else amount
