"""resourcequota: groups wait until their namespace's ResourceQuotas have room for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vcd.model.events import Waiting
from vcd.model.objects import Quantities, ResourceQuota
from vcd.model.quantity import QuantityError, parse_milli, parse_units
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
"""Amounts by name as the quota spells it (``requests.cpu``), in thousandths of a unit, bytes too."""


class ResourceQuotaPlugin(Plugin):
    """A group is admitted while used + admitted in this cycle + minResources stays within hard, in each ResourceQuota
    of its namespace.

    Names are compared as they are written: a limit on `requests.cpu` binds groups whose minResources list
    `requests.cpu`, as Volcano's job controller writes them, and not `cpu`. What a quota does not limit, and groups
    without minResources, are free; scopes are not looked at. Hard and used are those of the quota's status. A limit
    that cannot be read keeps the groups waiting that ask for its resource. Source: Volcano
    ``plugins/resourcequota``.
    """

    name = "resourcequota"
    treats_alike = True
    kinds = ("ResourceQuota",)

    def open(self, session: Session) -> None:
        """Find each namespace's quotas."""
        self._session = session
        self._quotas: dict[str, list[ResourceQuota]] = {}
        quotas = session.snapshot.others.get("ResourceQuota", {})
        for _, quota in sorted(quotas.items()):
            if isinstance(quota, ResourceQuota):
                self._quotas.setdefault(quota.metadata.namespace, []).append(quota)
        self._admitted: dict[str, Thousandths] = {}

    def job_enqueueable(self, job: Job) -> Vote | Reason:
        """Whether all quotas of the namespace have room for the group's minimum."""
        wanted = job.record.group.spec.min_resources
        if wanted is None:
            return Vote.PERMIT
        for quota in self._quotas.get(job.namespace, ()):
            refusal = self._refusal(quota, wanted, self._admitted.get(job.namespace, {}))
            if refusal is not None:
                return refusal
        return Vote.PERMIT

    def job_enqueued(self, job: Job) -> None:
        """Count the minimum of an admitted group: no quota shows it before its pods exist."""
        wanted = job.record.group.spec.min_resources
        if wanted is None or job.namespace not in self._quotas or self._session.jobs.too_large[job.index]:
            return
        admitted = self._admitted.setdefault(job.namespace, {})
        for name, text in wanted.items():
            try:
                admitted[name] = admitted.get(name, 0) + _thousandths(text)
            except QuantityError:
                continue  # no quota limits it, else the group would wait

    @classmethod
    def limits_told(cls, reason: Waiting) -> Iterable[QueueLimit]:
        """None: what it counts are limits of namespaces."""
        return ()

    @staticmethod
    def _refusal(quota: ResourceQuota, wanted: Quantities, admitted: Mapping[str, int]) -> Reason | None:
        hard, used = quota.status.hard, quota.status.used
        amounts: list[Amount] = []
        for name in sorted(wanted.keys() & hard.keys()):
            before = admitted.get(name, 0)
            try:
                asks = _read(f"minResources.{name} of the group", wanted[name])
                limit = _read(f"status.hard.{name} of the quota", hard[name])
                have = _read(f"status.used.{name} of the quota", used.get(name, 0))
            except QuantityError as error:
                return _UNREADABLE({"quota": quota.key, "error": str(error)})
            if have + before + asks > limit:
                told = {"asks": asks, "used": have, "admitted": before, "limit": limit}
                amounts += [(role, name, _base_units(name, amount)) for role, amount in told.items()]
        return _INSUFFICIENT({"quota": quota.key}, amounts) if amounts else None


def _thousandths(text: str | int | float) -> int:
    """A quantity in thousandths, whatever its size. Raises QuantityError."""
    try:
        return parse_milli(text)
    except QuantityError:
        return parse_units(text) * 1000  # bytes of petabytes and more are beyond int64 in thousandths


def _read(field: str, text: str | int | float) -> int:
    try:
        return _thousandths(text)
    except QuantityError as error:
        raise QuantityError(f"{field}: {error}") from None


def _base_units(name: str, amount: int) -> int:
    """Thousandths in the units in which amounts are told: bytes as such, of what a reason shows as bytes."""
    return amount // 1000 if is_bytes(name) else amount
