"""Lists the objects of a cluster once with the user's own rights, for ``vcd plan``.

A kind that the user may not list is not an error: the result states what the decision lacks without it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import msgspec

from vcd.daemon.reader.kubeconfig import ClusterError as ClusterError
from vcd.daemon.reader.kubeconfig import greet, refused, way_of
from vcd.kube.api_errors import ApiError, KubeError, decode
from vcd.kube.client import KubeClient, with_query
from vcd.model.kinds import Kind
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.registry import ALWAYS_READ, actions, kinds_read, plugins

Manifest = dict[str, Any]

ANSWER_TIMEOUT = 10.0
"""Seconds for the first answer. A list of a large cluster may take longer."""

WITHOUT: Mapping[str, str] = {
    "Pod": "no pod is known: none is placed, and nodes look empty",
    "Node": "no node is known: no pod can be placed",
    "PodGroup": "no gang is known: pods of gangs are not placed",
    "Queue": "only the queues default and root are known, without limits: jobs of other queues are not placed",
    "PriorityClass": "all jobs have the same priority",
    "Namespace": "labels and annotations of namespaces are ignored",
    "ResourceQuota": "quotas of namespaces are not enforced",
    "PodDisruptionBudget": "disruption budgets protect no pod from eviction",
    "Service": "pods are not spread by their services",
    "ReplicationController": "pods are not spread by their controllers",
    "ReplicaSet": "pods are not spread by their controllers",
    "StatefulSet": "pods are not spread by their controllers",
    "PersistentVolumeClaim": "pods with claims cannot be placed",
    "PersistentVolume": "volumes do not restrict nodes, and pods with unbound claims cannot be placed",
    "StorageClass": "pods with unbound claims cannot be placed",
    "CSINode": "limits of attached volumes are not known",
    "CSIDriver": "storage capacities are not checked",
    "CSIStorageCapacity": "storage capacities are not known",
    "Numatopology": "no node's NUMA topology is known",
    "HyperNode": "the network topology is not known, and groups that require a tier of it wait",
}
"""What a decision lacks if a kind may not be listed."""


_WITHOUT_OTHERS = {"Pod": "pods of other namespaces are not counted: nodes look emptier than they are"}
_NO_OTHERS = "those of other namespaces are ignored"
"""What a decision lacks if a kind may be listed in one namespace only."""


class Missing(msgspec.Struct, frozen=True):
    """A kind that could not be listed completely: its ``resource`` with API group, ``why`` (forbidden, forbidden
    outside a namespace, or not served), the required ``role`` (empty if the server has no such kind), and what the
    decision lacks (``without``)."""

    resource: str
    why: str
    role: str
    without: str

    def line(self) -> str:
        """Format as one line."""
        if not self.role:
            hint = " (is Volcano installed there?)" if self.resource.endswith(".volcano.sh") else ""
            return f"the server has no {self.resource}{hint}: {self.without}"
        where = self.why.removeprefix("forbidden")
        return f"may not list {self.resource}{where}: grant {self.role}; without it, {self.without}"


@dataclass(frozen=True)
class Listed:
    """The listed objects, the server, and the kubeconfig context (empty: a pod's service account)."""

    server: str
    context: str
    manifests: list[Manifest]
    missing: list[Missing]


async def list_cluster(
    conf: str | None = None,
    kubeconfig: str | None = None,
    context: str | None = None,
    namespace: str = "",
    environ: Mapping[str, str] | None = None,
) -> Listed:
    """List all kinds that a configuration reads (``conf`` is its text; None: the compiled-in one).

    A kind that may not be listed in all namespaces is listed in ``namespace`` (empty: the context's, or default).
    The kubeconfig is chosen as in ``kubeconfig.way_of``. Nothing is written. Raises ClusterError, PolicyError.
    """
    policy = read_policy(conf)
    way = await way_of(kubeconfig, context, environ)
    server = way.connection.base_url
    async with KubeClient(way.connection, user_agent="vcd-plan", request_timeout=ANSWER_TIMEOUT) as client:
        await greet(client, server)
        reader = _Reader(client, server, policy, namespace or way.context.namespace or "default")
        found = await asyncio.gather(*map(reader.all_of, kinds_read(policy)))
    manifests = [manifest for listed, _ in found for manifest in listed]
    return Listed(server, context or "", manifests, [missing for _, missing in found if missing is not None])


class _Reader:
    """Lists kinds at one server."""

    def __init__(self, client: KubeClient, server: str, policy: Policy, namespace: str) -> None:
        self._client = client
        self._server = server
        self._policy = policy
        self._namespace = namespace

    async def all_of(self, kind: Kind) -> tuple[list[Manifest], Missing | None]:
        """Return the objects of a kind, of one namespace if the user may not list more, and what is missing.

        Raises ClusterError.
        """
        found = await self._list(kind)
        if not isinstance(found, Missing):
            return found, None
        if found.why != "forbidden" or not kind.namespaced or kind.namespace:
            return [], found
        within = await self._list(dataclasses.replace(kind, namespace=self._namespace))
        if isinstance(within, Missing):
            return [], found
        why, without = f"forbidden outside of namespace {self._namespace}", _WITHOUT_OTHERS.get(kind.name, _NO_OTHERS)
        return within, Missing(found.resource, why, found.role, without)

    async def _list(self, kind: Kind) -> list[Manifest] | Missing:
        """Return the objects of a kind, or why they are missing. Raises ClusterError."""
        found: list[Manifest] = []
        fields = kind.field_selector
        path = with_query(kind.path, urlencode({"fieldSelector": fields})) if fields else kind.path
        try:
            async for page in self._client.list_pages(path):
                if page.first:
                    found.clear()
                # items of a list have no kind
                head = {"apiVersion": kind.api_version, "kind": kind.manifest_kind}
                found.extend(decode(_manifests, item, kind.name) | head for item in page.items)
        except ApiError as error:
            if error.status == 403:
                return Missing(_resource(kind), "forbidden", _role(kind), self._without(kind))
            if error.status == 404:
                return Missing(_resource(kind), "not served", "", self._without(kind))
            if error.status == 401:
                raise refused(self._server, error) from None
            raise self._failed(_resource(kind), error) from None
        except KubeError as error:
            raise self._failed(_resource(kind), error) from None
        return found

    def _without(self, kind: Kind) -> str:
        what = WITHOUT.get(kind.name, "they are ignored")
        readers = [] if kind.name in ALWAYS_READ else sorted(set(self._readers(kind)))
        return f"{what} ({', '.join(readers)} reads it)" if readers else what

    def _readers(self, kind: Kind) -> Iterable[str]:
        """Yield the plugins and actions of the configuration that declare a kind."""
        on: list[type[Plugin] | type[Action]] = [plugins()[one.name] for tier in self._policy.tiers for one in tier]
        on += [actions()[name] for name in self._policy.actions]
        for extension in on:
            if any(kind.name == (each if isinstance(each, str) else each.name) for each in extension.kinds):
                yield extension.name

    def _failed(self, what: str, error: KubeError) -> ClusterError:
        return ClusterError(f"the API server at {self._server} cannot be read ({what}: {error})")


_manifests: msgspec.json.Decoder[Manifest] = msgspec.json.Decoder(Manifest)


def _resource(kind: Kind) -> str:
    """Return the name for kubectl, such as ``podgroups.scheduling.volcano.sh``."""
    named = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
    return f"{named} in namespace {kind.namespace}" if kind.namespace else named


def _role(kind: Kind) -> str:
    """Return the role that a list requires, as text."""
    where = f"a Role in namespace {kind.namespace}" if kind.namespace else "a ClusterRole"
    which = f" (resourceNames {kind.object})" if kind.object else ""
    group = f"API group {kind.group}" if kind.group else 'API group ""'
    return f"{where} with verb list on {kind.plural}{which} of {group}"
