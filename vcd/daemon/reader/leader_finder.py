"""Finds the leader, the address of its log, and a token for it, through the API server and with the user's own rights.

Each refusal becomes a `ClusterError` that names the missing right and the role that grants it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from vcd.daemon.reader.kubeconfig import ClusterError, refused
from vcd.daemon.replicas.replica_identity import AUDIENCE, Address
from vcd.kube.api_errors import ApiError, decode
from vcd.kube.client import KubeClient, with_query
from vcd.kube.lease import ADDRESS, DEFAULT_NAME, DEFAULT_NAMESPACE, POD_NAMESPACE
from vcd.kube.write_limiter import Urgency
from vcd.model.wording import some

Object = dict[str, Any]

ACCOUNT = "vcd-reader"
"""The ServiceAccount that may only read the log. A user that may create a token of it can read the log."""
READER = "vcd.volcano.sh/reader"
"""The annotation of vcd's pods that names another ServiceAccount."""
OPERATOR = "vcd-operator"
"""The role for users that read the log."""
TOKEN_SECONDS = 600
"""Lifetime of a token, which is sent once, when the connection begins."""
SET_UP = (
    "set eventLog.shared=true in the chart, add deploy/components/one-log, or give vcd run --replicas-address"
    " (docs/operations/high-availability.md)"
)
_LEASES = "leases.coordination.k8s.io"

_object: msgspec.json.Decoder[Object] = msgspec.json.Decoder(Object)


class NoLeader(Exception):
    """The Lease has no holder, or its holder is gone. Another attempt may succeed."""


@dataclass(frozen=True)
class Lease:
    """A held Lease: the holder, the address of its log, and its pod's namespace (empty if not stated)."""

    namespace: str
    name: str
    holder: str
    address: Address
    pod_namespace: str = ""


@dataclass(frozen=True)
class PodPort:
    """Where the leader's log is served, and the ServiceAccount whose token reads it."""

    namespace: str
    pod: str
    port: int
    account: str


class Finder:
    """Queries one API server; ``server`` is its address for messages.

    Every method raises ClusterError for a missing object or right, and KubeError for other failures.
    """

    def __init__(self, client: KubeClient, server: str) -> None:
        self._client = client
        self._server = server

    async def lease(self, where: str) -> Lease:
        """Return the Lease whose holder serves the log. Raises NoLeader, too.

        ``where`` is NAMESPACE, NAMESPACE/NAME or empty. Without a name it is the Lease with the default name, or
        the only one that states the address of a log.
        """
        namespace, _, name = where.partition("/")
        usual = await self._lease_of(namespace or DEFAULT_NAMESPACE, name or DEFAULT_NAME)
        if usual is not None and (name or ADDRESS in _annotations(usual)):
            return _read(usual)
        if name:
            raise ClusterError(f"there is no Lease {name} in namespace {namespace}: does vcd run there?")
        found = [one for one in await self._leases(namespace) if ADDRESS in _annotations(one)]
        if len(found) == 1:
            return _read(found[0])
        if found:
            names = some(sorted("/".join(_key_of(one)) for one in found), 10)
            choose = "choose with --scheduler-namespace NAMESPACE/NAME"
            raise ClusterError(f"several schedulers serve a log ({names}); {choose}")
        if usual is not None:
            raise _not_served(usual)
        at = f"in namespace {namespace}" if namespace else f"at {self._server}"
        raise ClusterError(f"no Lease {at} names a scheduler's log; check that vcd runs there, then {SET_UP}")

    async def pod(self, lease: Lease) -> PodPort:
        """Return the pod that holds a Lease, found by its address, and by its name if several have that address.

        Raises NoLeader, too.
        """
        where = urlsplit(lease.address.url)
        host, port = where.hostname or "", where.port or 443
        query = f"fieldSelector={quote(f'status.podIP={host},status.phase=Running')}" if _is_address(host) else ""
        for namespace in dict.fromkeys((lease.pod_namespace or lease.namespace, lease.namespace, "")):
            try:
                found = await self._list("pods", "", namespace, query)
            except ClusterError as error:
                if namespace:
                    raise
                beyond = f"; other namespaces cannot be searched: {error}"
                break
            named = [one for one in found if _key_of(one)[1] in (lease.holder.rpartition("_")[0], lease.holder)]
            if chosen := named or (found if query else []):
                return PodPort(*_key_of(chosen[0]), port, str(_annotations(chosen[0]).get(READER) or ACCOUNT))
        else:
            beyond = ""
        held = f"{lease.holder} holds Lease {lease.namespace}/{lease.name}"
        raise NoLeader(f"{held}, and no running pod of {lease.namespace} has its address {host}{beyond}")

    async def token(self, at: PodPort, file: Path | None) -> str:
        """Return a token for the log: from a file, or a new one of the reader's ServiceAccount."""
        if file is not None:
            try:
                token = (await asyncio.to_thread(file.read_text)).strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ClusterError(f"--token-file {file} cannot be read: {error}") from None
            if not re.fullmatch(r"[!-~]+", token):
                raise ClusterError(f"--token-file {file} has no token; a token is one line of ASCII without spaces")
            return token
        wanted = {"audiences": [AUDIENCE], "expirationSeconds": TOKEN_SECONDS}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": wanted}
        account, namespace = at.account, at.namespace
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/serviceaccounts/{quote(account, safe='')}/token"
        try:
            raw = await self._client.request("POST", path, msgspec.json.encode(body), urgency=Urgency.EVENT)
        except ApiError as error:
            if error.status == 404:
                comes = "it comes with eventLog.shared of the chart and with components/one-log"
                other = "or show another token with --token-file"
                raise ClusterError(
                    f"there is no ServiceAccount {account} in namespace {namespace}: {comes}; {other}"
                ) from None
            raise self._explain_refusal(error, "create", f"serviceaccounts/token {account}", "", namespace) from None
        return str((decode(_object, raw, "TokenRequest").get("status") or {}).get("token", ""))

    def may_not_forward(self, error: ApiError, at: PodPort) -> Exception:
        """Explain a refused port-forward."""
        if error.status == 404:
            return NoLeader(f"pod {at.namespace}/{at.pod} no longer exists")
        return self._explain_refusal(error, "get and create", "pods/portforward", "", at.namespace)

    async def _lease_of(self, namespace: str, name: str) -> Object | None:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases/{quote(name, safe='')}"
        try:
            return decode(_object, await self._client.request("GET", path), "Lease")
        except ApiError as error:
            if error.status == 404:
                return None
            raise self._explain_refusal(error, "get", f"{_LEASES} {name}", "coordination.k8s.io", namespace) from None

    async def _leases(self, namespace: str) -> list[Object]:
        return await self._list("leases", "coordination.k8s.io", namespace, "")

    async def _list(self, plural: str, group: str, namespace: str, query: str) -> list[Object]:
        base = f"/apis/{group}/v1" if group else "/api/v1"
        path = f"{base}/namespaces/{quote(namespace, safe='')}/{plural}" if namespace else f"{base}/{plural}"
        found: list[Object] = []
        try:
            async for page in self._client.list_pages(with_query(path, query) if query else path):
                if page.first:
                    found.clear()
                found += [decode(_object, item, plural) for item in page.items]
        except ApiError as error:
            raise self._explain_refusal(
                error, "list", f"{plural}.{group}" if group else plural, group, namespace
            ) from None
        return found

    def _explain_refusal(self, error: ApiError, verb: str, what: str, group: str, namespace: str) -> Exception:
        """Turn a refusal into an error that names the required role; return other errors unchanged."""
        if error.status == 401:
            return refused(self._server, error)
        if error.status != 403:
            return error
        resource, _, name = what.partition(" ")
        plural = resource.removesuffix(f".{group}") if group else resource
        where = f" in namespace {namespace}" if namespace else ""
        role = f"a Role in namespace {namespace}" if namespace else "a ClusterRole"
        named = f" (resourceNames {name})" if name else ""
        other = "" if namespace else ", or --scheduler-namespace, where vcd runs"
        return ClusterError(
            f"may not {verb} {resource}{where}: grant {role} with verb {verb} on {plural}{named} of API group"
            f' "{group}"{other}; the role {OPERATOR} has all required rights (docs/operations/remote-access.md)'
        )


def _read(lease: Object) -> Lease:
    """Parse a Lease. Raises ClusterError if its holder serves no log, NoLeader if it has no holder."""
    namespace, name = _key_of(lease)
    holder = str((lease.get("spec") or {}).get("holderIdentity") or "")
    whose, _, address = str(_annotations(lease).get(ADDRESS) or "").rpartition(" ")
    if not holder:
        raise NoLeader(f"Lease {namespace}/{name} has no holder at the moment")
    if whose != holder:
        raise _not_served(lease)
    try:
        return Lease(namespace, name, holder, Address.read(address), str(_annotations(lease).get(POD_NAMESPACE) or ""))
    except ValueError as error:
        raise ClusterError(
            f"Lease {namespace}/{name}: annotation {ADDRESS} is not an address of vcd: {error}"
        ) from None


def _not_served(lease: Object) -> ClusterError:
    namespace, name = _key_of(lease)
    holder = str((lease.get("spec") or {}).get("holderIdentity") or "") or "no replica"
    return ClusterError(f"{holder} holds Lease {namespace}/{name} and serves no log: {SET_UP}")


def _key_of(of: Object) -> tuple[str, str]:
    metadata = of.get("metadata") or {}
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))


def _annotations(of: Object) -> Mapping[str, Any]:
    found = (of.get("metadata") or {}).get("annotations")
    return found if isinstance(found, dict) else {}


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
