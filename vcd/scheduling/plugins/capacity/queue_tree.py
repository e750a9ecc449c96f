"""capacity's tree of queues: parents, misconfigurations, and limits from the root down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from vcd.model.objects import ROOT_QUEUE
from vcd.model.quantity import format_resource
from vcd.model.resource_requests import format_sum
from vcd.scheduling.framework.queueaccounts import UNLIMITED, Resources
from vcd.scheduling.plugins.capacity.capacity_accounts import Account

Rank = tuple[float, bool]
"""(share, deserves nothing): queues and their ancestors are compared by it, smallest first."""


class Standing:
    """A leaf's place in the tree: names and ranks of its ancestors below the root and of itself, from the top.

    Two places are compared at the first ancestors in which they differ, and nowhere else: if these are equal, so are
    the queues. As in Volcano, this is not transitive, so it is no total order of more than two queues.
    """

    __slots__ = ("names", "ranks")

    def __init__(self, names: tuple[str, ...], ranks: tuple[Rank, ...]) -> None:
        self.names = names
        self.ranks = ranks

    def _parted(self, other: Standing) -> tuple[Rank, Rank] | None:
        for mine, theirs, rank, against in zip(self.names, other.names, self.ranks, other.ranks, strict=False):
            if mine != theirs:
                return rank, against
        return None

    def __lt__(self, other: Standing) -> bool:
        parted = self._parted(other)
        return parted is not None and parted[0] < parted[1]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Standing):
            return NotImplemented
        parted = self._parted(other)
        return parted is None or parted[0] == parted[1]

    __hash__ = None  # type: ignore[assignment] # equal places may have nothing in common


def link(accounts: list[Account], bad: Mapping[str, str]) -> dict[str, str]:
    """Set each account's parent, children and lineage; return problems with parents, by queue name.

    ``bad`` has problems of unreadable queues, which have no account, by name. A queue without a parent is below the
    root, and so is a queue in a cycle or with a parent that does not exist.
    """
    by_name = {account.name: account for account in accounts}
    root = by_name.get(ROOT_QUEUE)
    problems: dict[str, str] = {}
    for account in accounts:
        if account.name == ROOT_QUEUE:
            continue
        name = account.queue.record.queue.parent
        account.parent = by_name.get(name)
        if account.parent is None and name != ROOT_QUEUE:
            problems[account.name] = (
                f"spec.parent names queue {name}, which cannot be used ({bad[name]}): mend it or name another parent"
                if name in bad
                else f"spec.parent names queue {name}, which does not exist: create it or name another parent"
            )
    for account in accounts:
        circle = _circle(account)
        if circle:
            problems[account.name] = (
                f"spec.parent leads in a circle ({' > '.join(circle)}): give one of these another parent"
            )
    for account in accounts:
        if account.name in problems:
            account.parent = root
        if account.parent is not None:
            account.parent.children.append(account)
    for account in _downwards(accounts):
        if account.parent is not None:
            account.lineage = (account, *account.parent.lineage)
    return problems


def _circle(account: Account) -> list[str]:
    """Return the names along the parents from an account back to itself; empty if there is no cycle."""
    names, above = [account.name], account.parent
    while above is not None and above.name not in names:
        names.append(above.name)
        above = above.parent
    return [*names, account.name] if above is account else []


def _downwards(accounts: Iterable[Account]) -> Iterator[Account]:
    """Yield all accounts, parents before children."""
    level = [account for account in accounts if account.parent is None]
    while level:
        yield from level
        level = [child for account in level for child in account.children]


def check_amounts(accounts: list[Account], resources: Resources, problems: dict[str, str]) -> None:
    """Inherit capabilities and set the root's quantities, from the root down; add misconfigurations to ``problems``.

    A queue without a capability of its own has its parent's.
    """
    for account in _downwards(accounts):
        own_problem = _inherit(account, resources)
        if account.name == ROOT_QUEUE:
            account.guarantee = _sum_of(account.children, lambda child: child.guarantee, resources)
            account.deserved = _sum_of(account.children, _entitlement, resources)
        else:
            own_problem = own_problem or _sums_problem(account, resources)
        if own_problem:
            problems.setdefault(account.name, own_problem)
    for account in _downwards(accounts):
        parent = account.parent
        if parent is not None and parent.name in problems and account.name not in problems:
            problems[account.name] = f"parent queue {parent.name}: {problems[parent.name]}"


def set_limits(accounts: list[Account], resources: Resources) -> None:
    """Set real capabilities from the root down.

    A queue's real capability is its parent's less the guarantees of its siblings, at most its capability. The root has
    no limit unless its capability states one. If its children have guarantees, their siblings are limited by the
    cluster's total less these guarantees.
    """
    for account in _downwards(accounts):
        if account.parent is None:
            account.real_capability = account.capability
        _limit_children(account, resources)


def _inherit(account: Account, resources: Resources) -> str:
    """Inherit the capability from the parent; return a problem if the own one exceeds it."""
    parent = account.parent
    if parent is None:
        return ""
    over = ""
    for column, (own, most) in enumerate(zip(account.capability, parent.capability, strict=True)):
        if own == UNLIMITED:
            account.capability[column] = most
        elif own > most and not over:
            name = resources.names[column]
            over = (
                f"spec.capability {name} {format_resource(name, own)} is more than the {format_resource(name, most)} "
                f"of parent queue {parent.name}: lower it or raise the parent's"
            )
    return over


def _entitlement(account: Account) -> list[int]:
    return [max(pair) for pair in zip(account.deserved, account.guarantee, strict=True)]


def _sum_of(accounts: list[Account], of: Callable[[Account], list[int]], resources: Resources) -> list[int]:
    return [sum(column) for column in zip([0] * resources.width, *[of(account) for account in accounts], strict=True)]


def _sums_problem(account: Account, resources: Resources) -> str:
    """Return a problem if children together deserve, or are guaranteed, more than their parent."""
    if not account.children:
        return ""
    for field, of, own in (
        ("deserved", _entitlement, _entitlement(account)),
        ("guarantee.resource", lambda child: child.guarantee, account.guarantee),
    ):
        for column, (total, mine) in enumerate(zip(_sum_of(account.children, of, resources), own, strict=True)):
            if total > mine:
                name = resources.names[column]
                return (
                    f"spec.{field} {name} is {format_resource(name, mine)}, that of its child queues together "
                    f"{format_sum(name, total)}: raise it or lower the children's"
                )
    return ""


def _limit_children(account: Account, resources: Resources) -> None:
    counted = _sum_of(account.children, lambda child: child.counted_guarantee, resources)
    for child in account.children:
        real = []
        for column, (most, guarantees, own) in enumerate(
            zip(account.real_capability, counted, child.counted_guarantee, strict=True)
        ):
            if account.name == ROOT_QUEUE and guarantees > own:
                most = min(most, resources.total[column])
            real.append(most if most == UNLIMITED else max(most - guarantees, 0) + own)
        child.real_capability = [min(pair) for pair in zip(real, child.capability, strict=True)]
