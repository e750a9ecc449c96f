"""A group's ``subGroupPolicy``: which pods each policy selects, and to which sub-job they belong.

Source: Volcano ``api/sub_job_info.go``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

from vcd.model.objects import Pod, SubGroupPolicy
from vcd.model.selectors import LabelSelector, Selector, SelectorError

_INTEGER = re.compile(r"[+-]?[0-9]+")
_LARGEST = 2**63


class SubGroups:
    """One policy: the size of its sub-groups, their minimum number, and the pods that it selects."""

    __slots__ = ("_keys", "_selector", "fault", "index", "minimum", "name", "size")

    def __init__(self, policy: SubGroupPolicy | None, index: int) -> None:
        self.index = index
        self.name = "" if policy is None else policy.name
        self.size = 1 if policy is None else policy.sub_group_size
        self.minimum = 0 if policy is None else policy.min_sub_groups
        self.fault = ""
        """Why it can select no pod, with a remedy; empty if it can."""
        self._keys = () if policy is None else policy.match_label_keys
        self._selector: Selector | None = None
        if policy is None:
            return
        if not self._keys:
            self.fault = "matchLabelKeys is empty, so no pod belongs to it; name the labels that distinguish sub-groups"
        if policy.label_selector is not None:
            try:
                self._selector = LabelSelector.compile(policy.label_selector)
            except SelectorError as error:
                self.fault = f"labelSelector cannot be read, so no pod is of it: {error}"

    def values_of(self, pod: Pod) -> tuple[str, ...]:
        """Return the label values that identify a pod's sub-job in this policy; empty if it does not select the pod."""
        labels = pod.metadata.labels
        if self.fault or (self._selector is not None and not self._selector.matches(labels)):
            return ()
        values = tuple([labels.get(key, "") for key in self._keys])
        return values if all(values) else ()


Policy = TypeVar("Policy", bound=SubGroups)


def place_of(pod: Pod, policies: Iterable[Policy]) -> tuple[Policy | None, tuple[str, ...]]:
    """Return the first policy that selects a pod, with the label values of its sub-job; None if no policy does."""
    for policy in policies:
        if values := policy.values_of(pod):
            return policy, values
    return None, ()


def index_of_value(text: str) -> int:
    """Parse a number as Go's ``Atoi``, 0 if that fails."""
    if not _INTEGER.fullmatch(text) or len(text) > 20:
        return 0
    number = int(text)
    return number if -_LARGEST <= number < _LARGEST else 0
