"""Reasons for refusals as values: a declared code, and names and amounts of the case.

Text is rendered where a reason is displayed, and never parsed.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from string import Formatter
from typing import Final

import msgspec

from vcd.model.quantity import is_disk_or_huge_pages
from vcd.model.resource_requests import LARGEST_SUM, MEMORY, format_sum

Amount = tuple[str, str, int]
"""A role such as ``asks``, a resource (empty for a plain count), and the amount in the resource's base unit."""


JOB_ROLES: Final = frozenset({"owner", "owners", "holder", "ahead"})
"""Roles whose names are jobs, perhaps of other namespaces."""
MEND_NAMED: Final = "correct what is named"
"""The remedy of reasons whose text already names the mistake."""
REMEDY: Final = "mend"
"""The role of a name that states the remedy."""


class Cause(enum.StrEnum):
    """Classes of reasons, independent of the plugin: waiting pods are counted by cause, explanations begin with it."""

    SHAPE = "unschedulable-shape"
    """No node takes the pod, even if it were empty."""
    SELECTOR = "selector"
    """Node selector or required node affinity."""
    TAINT = "taint"
    UNSCHEDULABLE_NODE = "unschedulable-node"
    """Nodes are cordoned, or there are none."""
    NODE_POLICY = "node-policy"
    """A plugin's rules about which nodes take work: node groups, revocable zones, thresholds of usage."""
    NODE_ROOM = "node-room"
    DEVICE = "device"
    """Cards of nodes, or their NUMA topology, do not fit the pod."""
    QUEUE_DESERVED = "queue-deserved"
    QUEUE_CAPABILITY = "queue-capability"
    PARENT_LIMIT = "parent-limit"
    OTHERS_GUARANTEE = "others-guarantee"
    CARD_QUOTA = "card-quota"
    NAMESPACE_QUOTA = "namespace-quota"
    ADMISSION = "admission"
    """Reservations of groups that were admitted before."""
    VOLUME = "volume"
    POD_AFFINITY = "pod-affinity"
    SPREAD = "spread"
    PORTS = "ports"
    PODS_MISSING = "pods-missing"
    """Fewer pods exist than the group's minimum."""
    GANG_INCOMPLETE = "gang-incomplete"
    """Other pods of the gang have no capacity."""
    GATED = "gated"
    QUEUE_CLOSED = "queue-closed"
    QUEUE_MISSING = "queue-missing"
    UNSUPPORTED = "unsupported"
    INVALID = "invalid"
    """An object or setting of a user is invalid."""
    OUTSIDE = "outside"
    """An external system refuses, or does not answer."""
    FRAGMENTATION = "fragmentation"
    """Enough is free in total, in pieces that are too small."""
    CLUSTER_FULL = "cluster-full"
    """Less is free in total than is needed."""
    ORDER = "order"
    """Capacity or quota went to other jobs first."""
    LEAVING = "leaving"
    """Capacity or quota is being freed."""
    PLUGIN = "plugin"
    """A third-party plugin, for a cause that is none of these."""


CAUSES: Final = tuple(cause.value for cause in Cause)
"""vcd's own causes; a plugin may declare others."""


class Reason(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Why something is refused: a declared code, with names and amounts by role."""

    code: str
    names: tuple[tuple[str, str], ...] = ()
    amounts: tuple[Amount, ...] = ()

    @property
    def declared(self) -> ReasonCode:
        """The declaration of its code. Raises InvalidReason if there is none."""
        try:
            return CODES[self.code]
        except (KeyError, TypeError):
            raise InvalidReason(f"no reason {self.code!r} is declared") from None

    @property
    def words(self) -> str:
        """The text, without names and amounts that it does not mention."""
        return self.declared.in_words(self)

    @property
    def detail(self) -> dict[str, str]:
        """The names and amounts that the text does not mention, by role, or by role and resource."""
        return self.declared.remaining_facts(self)

    def facts(self, but: Collection[str] = ()) -> dict[str, str]:
        """Return the names and amounts as text, without some roles."""
        facts = {role: text for role, text in self.names if role not in but}
        for role, resource, amount in self.amounts:
            if role not in but:
                facts[f"{role} {resource}".rstrip()] = shown(resource, amount)
        return facts

    def by_resource(self) -> dict[str, dict[str, int]]:
        """Return the amounts by resource and role."""
        found: dict[str, dict[str, int]] = {}
        for role, resource, amount in self.amounts:
            found.setdefault(resource, {})[role] = amount
        return found

    def amounts_of(self, role: str) -> dict[str, int]:
        """Return the amounts of a role, by resource."""
        return {resource: amount for name, resource, amount in self.amounts if name == role}


class ReasonCode:
    """A kind of reason, declared by the code that gives it. Calling it with names and amounts creates a Reason.

    ``words`` is the sentence; ``{role}`` in it is replaced by a name or an amount. With ``{resource}``, the sentence is
    repeated for each resource of the amounts. ``mend`` is the remedy if waiting does not help. ``nodes_help``: more
    nodes could help. ``field`` is the deciding field of queue, quota or configuration, perhaps with ``{resource}``. A
    ``remark`` is information only: no pod waits because of it.
    """

    def __init__(
        self,
        name: str,
        cause: Cause,
        words: str,
        *,
        mend: str = "",
        nodes_help: bool = False,
        field: str = "",
        remark: bool = False,
    ) -> None:
        """Declare a reason.

        Raises ValueError if another reason has the name, or if braces in the text do not hold a role.
        """
        self.name = name
        self.cause = cause
        self.label = cause.value
        self.words = words
        self.mend = mend
        self.nodes_help = nodes_help
        self.field = field
        self.remark = remark
        roles = [role for _, role, _, _ in Formatter().parse(words) if role is not None]
        if not all(role.isidentifier() for role in roles):
            raise ValueError(f"the reason {name}: braces in its text must hold a role: {words!r}")
        self._roles = frozenset(roles)
        if vars(CODES.setdefault(name, self)) != vars(self):
            raise ValueError(f"the reason {name} is declared twice")

    def __call__(self, names: Mapping[str, str] | None = None, amounts: Iterable[Amount] = ()) -> Reason:
        """Create the reason. Amounts are limited to LARGEST_SUM, which sums of requests may exceed."""
        bounded_amounts = tuple([(role, resource, min(amount, LARGEST_SUM)) for role, resource, amount in amounts])
        return Reason(self.name, tuple(names.items()) if names else (), bounded_amounts)

    def in_words(self, reason: Reason) -> str:
        """Render the sentence for a reason."""
        if not self._roles:
            return self.words
        names, by_resource = _RoleTexts(reason.names), reason.by_resource()
        if self._roles <= names.keys() or not by_resource:
            return self.words.format_map(names)
        sentences = []
        for resource, amounts in by_resource.items():
            texts = {role: shown(resource, amount) for role, amount in amounts.items()}
            sentences.append(self.words.format_map(_RoleTexts({"resource": resource, **texts, **names})))
        return "; ".join(sentences)

    def remaining_facts(self, reason: Reason) -> dict[str, str]:
        """Return names and amounts that the sentence does not mention."""
        return reason.facts(self._roles)


class _RoleTexts(dict[str, str]):
    """Names by role. A log of another version may lack roles of the current sentence."""

    def __missing__(self, role: str) -> str:
        return "?"


class InvalidReason(ValueError):
    """What a plugin returned as a reason is none."""


def well_formed(reason: Reason) -> Reason:
    """Return a reason if it can be logged and rendered.

    Raises InvalidReason if its code is not declared, or names and amounts have wrong types.
    """
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(reason), type=Reason)
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError) as error:
        raise InvalidReason(f"a Reason with texts and integers ({error})") from None
    if reason.code not in CODES:
        raise InvalidReason("a declared code as that of a Reason")
    return reason


CODES: Final[dict[str, ReasonCode]] = {}
"""All declared codes of imported modules, by name."""


def shown(resource: str, amount: int) -> str:
    """Format an amount as Kubernetes does; names of quotas may have the prefix ``requests.`` or ``limits.``."""
    return format_sum(_base_resource(resource), amount) if resource else f"{amount}"


def is_bytes(resource: str) -> bool:
    """Whether amounts of a resource, named as in a queue or quota, are bytes; otherwise they are thousandths."""
    name = _base_resource(resource)
    return name == MEMORY or is_disk_or_huge_pages(name)


def _base_resource(resource: str) -> str:
    return resource.removeprefix("requests.").removeprefix("limits.")
