"""Why something is not done, as a value: a declared code and the facts of the case. Words are made of it where it is
shown, and nowhere read back."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from string import Formatter
from typing import Final

import msgspec

from vcd.model.quantity import is_disk_or_huge_pages
from vcd.model.requests import LARGEST_SUM, MEMORY, format_sum

Amount = tuple[str, str, int]
"""A role such as ``asks``, a resource (empty for a plain count), and how much in the resource's base unit."""


JOB_ROLES: Final = frozenset({"owner", "owners", "holder", "ahead"})
"""Roles of what reasons and diagnoses name that are jobs, perhaps of other namespaces."""
MEND_NAMED: Final = "correct what is named"
"""What ends the wait where the reason says itself what is wrong."""
REMEDY: Final = "mend"
"""The role of a name of a reason that states what ends the wait."""


class Cause(enum.StrEnum):
    """What a reason comes to, whoever gives it: by this waiting pods are counted and answers begin."""

    SHAPE = "unschedulable-shape"
    """No node, were it empty, takes the pod."""
    SELECTOR = "selector"
    """Node selector or required node affinity."""
    TAINT = "taint"
    UNSCHEDULABLE_NODE = "unschedulable-node"
    """Nodes are cordoned, or there are none."""
    NODE_POLICY = "node-policy"
    """A plugin's rules about which nodes take work: node groups, revocable zones, thresholds of usage."""
    NODE_ROOM = "node-room"
    DEVICE = "device"
    """Cards of nodes, or how their cpus lie, do not serve the pod."""
    QUEUE_DESERVED = "queue-deserved"
    QUEUE_CAPABILITY = "queue-capability"
    PARENT_LIMIT = "parent-limit"
    OTHERS_GUARANTEE = "others-guarantee"
    CARD_QUOTA = "card-quota"
    NAMESPACE_QUOTA = "namespace-quota"
    ADMISSION = "admission"
    """What groups that were admitted before have reserved."""
    VOLUME = "volume"
    POD_AFFINITY = "pod-affinity"
    SPREAD = "spread"
    PORTS = "ports"
    PODS_MISSING = "pods-missing"
    """Fewer pods exist than the group's minimum."""
    GANG_INCOMPLETE = "gang-incomplete"
    """Others of the gang have no room."""
    GATED = "gated"
    QUEUE_CLOSED = "queue-closed"
    QUEUE_MISSING = "queue-missing"
    UNSUPPORTED = "unsupported"
    INVALID = "invalid"
    """Something that a user wrote cannot be taken as written."""
    OUTSIDE = "outside"
    """Somebody outside says no who is asked, or does not answer."""
    FRAGMENTATION = "fragmentation"
    """Enough is free in sum, in pieces too small."""
    CLUSTER_FULL = "cluster-full"
    """Less is free in sum than is needed."""
    ORDER = "order"
    """Room or quota went to others first."""
    LEAVING = "leaving"
    """Room or quota is being freed."""
    PLUGIN = "plugin"
    """A plugin that is not vcd's, for a cause that is none of these."""


CAUSES: Final = tuple(cause.value for cause in Cause)
"""The causes that vcd itself knows; a plugin may declare others."""


class Reason(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Why not: the code that somebody declared, names and amounts by the roles that they play."""

    code: str
    names: tuple[tuple[str, str], ...] = ()
    amounts: tuple[Amount, ...] = ()

    @property
    def declared(self) -> ReasonCode:
        """What was declared of its code. Raises InvalidReason where nobody did."""
        try:
            return CODES[self.code]
        except (KeyError, TypeError):
            raise InvalidReason(f"no reason {self.code!r} is declared") from None

    @property
    def words(self) -> str:
        """In words, without the names and amounts that they do not hold."""
        return self.declared.in_words(self)

    @property
    def detail(self) -> dict[str, str]:
        """The names and amounts that the words do not hold, by role, or by role and resource."""
        return self.declared.beside_words(self)

    def facts(self, but: Collection[str] = ()) -> dict[str, str]:
        """The names and amounts, but those of some roles."""
        told = {role: text for role, text in self.names if role not in but}
        for role, resource, amount in self.amounts:
            if role not in but:
                told[f"{role} {resource}".rstrip()] = shown(resource, amount)
        return told

    def by_resource(self) -> dict[str, dict[str, int]]:
        """The amounts by resource and role."""
        found: dict[str, dict[str, int]] = {}
        for role, resource, amount in self.amounts:
            found.setdefault(resource, {})[role] = amount
        return found

    def amounts_of(self, role: str) -> dict[str, int]:
        """The amounts that play a role, by resource."""
        return {resource: amount for name, resource, amount in self.amounts if name == role}


class ReasonCode:
    """A kind of reason, declared beside who gives it; called with the facts of a case it makes the reason.

    ``words`` is the sentence, in which ``{role}`` stands for a name or an amount; one that holds ``{resource}`` is said
    of each resource of the amounts. ``mend`` is what ends it where waiting does not, ``nodes_help`` whether more nodes
    could; ``field`` is what of the queue, quota or configuration decides, with ``{resource}`` where it is one's. A
    ``remark`` says what was passed over, and keeps nobody back.
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
        """Declare it. Raises ValueError where the name is another reason's, or the words hold braces that name no
        role."""
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
            raise ValueError(f"the words of the reason {name} name no role in braces: {words!r}")
        self._roles = frozenset(roles)
        if vars(CODES.setdefault(name, self)) != vars(self):
            raise ValueError(f"the reason {name} is declared twice")

    def __call__(self, names: Mapping[str, str] | None = None, amounts: Iterable[Amount] = ()) -> Reason:
        """The reason in a case. An amount counts as LARGEST_SUM at most: sums of what pods ask for may be beyond it."""
        told = tuple([(role, resource, min(amount, LARGEST_SUM)) for role, resource, amount in amounts])
        return Reason(self.name, tuple(names.items()) if names else (), told)

    def in_words(self, reason: Reason) -> str:
        """The sentence about a case."""
        if not self._roles:
            return self.words
        names, told = _Named(reason.names), reason.by_resource()
        if self._roles <= names.keys() or not told:
            return self.words.format_map(names)
        said = []
        for resource, amounts in told.items():
            texts = {role: shown(resource, amount) for role, amount in amounts.items()}
            said.append(self.words.format_map(_Named({"resource": resource, **texts, **names})))
        return "; ".join(said)

    def beside_words(self, reason: Reason) -> dict[str, str]:
        """What of a case the sentence does not hold."""
        return reason.facts(self._roles)


class _Named(dict[str, str]):
    """What plays a role; a log of another version may not tell all that the words hold now."""

    def __missing__(self, role: str) -> str:
        return "?"


class InvalidReason(ValueError):
    """What a plugin gives as a reason is none."""


def well_formed(reason: Reason) -> Reason:
    """A reason that can be logged and told. Raises InvalidReason: its code is not declared, or it does not hold names
    and amounts."""
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(reason), type=Reason)
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError) as error:
        raise InvalidReason(f"a Reason with texts and integers ({error})") from None
    if reason.code not in CODES:
        raise InvalidReason("a declared code as that of a Reason")
    return reason


CODES: Final[dict[str, ReasonCode]] = {}
"""All that were declared by what was imported, by name."""


def shown(resource: str, amount: int) -> str:
    """An amount as Kubernetes writes it; quotas name what they limit with ``requests.`` or ``limits.`` before it."""
    return format_sum(_limited(resource), amount) if resource else f"{amount}"


def is_bytes(resource: str) -> bool:
    """Whether amounts of a resource, as a queue or quota names it, are bytes; else they are thousandths."""
    name = _limited(resource)
    return name == MEMORY or is_disk_or_huge_pages(name)


def _limited(resource: str) -> str:
    return resource.removeprefix("requests.").removeprefix("limits.")
