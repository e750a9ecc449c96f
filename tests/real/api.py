"""The API server as an administrator asks it: one request after the other, objects by the name of their resource.

Its methods are those of the embedded cluster's store, so that a test of ``tests/e2e`` does not know which one it has.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from typing import Any, NamedTuple
from urllib.parse import urlencode

Obj = dict[str, Any]
JSON = "application/json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


class Refused(Exception):
    """The API server answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Resource(NamedTuple):
    """Where a resource is served."""

    base: str
    plural: str
    api_version: str
    kind: str
    namespaced: bool

    def path(self, namespace: str | None, name: str = "", part: str = "") -> str:
        where = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join(piece for piece in (f"{self.base}{where}/{self.plural}", name, part) if piece)


class Api:
    """Requests of somebody, the owner of a certificate in ``context`` or of a token, over one connection a thread."""

    def __init__(self, port: int, context: ssl.SSLContext, token: str = "") -> None:
        self._port = port
        self._context = context
        self._token = token
        self._local = threading.local()
        self._resources: dict[str, Resource] = {}
        self._open: set[http.client.HTTPSConnection] = set()

    def with_token(self, token: str) -> Api:
        """Requests of somebody else; close it."""
        return Api(self._port, ssl.create_default_context(cadata=self._authority()), token)

    def _authority(self) -> bytes:
        return b"".join(self._context.get_ca_certs(binary_form=True))

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open:
            connection.close()

    # --- requests -----------------------------------------------------------------------------------------------------

    def request(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Any:
        """One request; its decoded answer, a text where it is none of JSON. Raises Refused, OSError."""
        raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if raw else {}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        status, text = self._exchange(method, path, raw, headers)
        try:
            answer = json.loads(text)
        except ValueError:
            answer = text.decode(errors="replace")
        if status >= 400:
            raise Refused(status, answer["message"] if isinstance(answer, dict) else answer)
        return answer

    def _exchange(self, method: str, path: str, raw: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        while True:
            connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
            fresh = connection is None
            if connection is None:
                connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._context, timeout=30)
                self._local.connection = connection
                self._open.add(connection)
            try:
                connection.request(method, path, raw, headers)
                response = connection.getresponse()
                return response.status, response.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                self._open.discard(connection)
                self._local.connection = None
                if fresh:  # one that was kept open may have been closed meanwhile, and then nobody read the request
                    raise

    def resource(self, name: str) -> Resource:
        """Where ``plural`` or ``plural.group`` is served, as the server's discovery says."""
        if name not in self._resources:
            plural, _, group = name.partition(".")
            base = "/api/v1"
            if group:
                base = f"/apis/{self.request('GET', f'/apis/{group}')['preferredVersion']['groupVersion']}"
            found = next(each for each in self.request("GET", base)["resources"] if each["name"] == plural)
            version = base.removeprefix("/apis/").removeprefix("/api/")
            self._resources[name] = Resource(base, plural, version, found["kind"], found["namespaced"])
        return self._resources[name]

    # --- objects, as the embedded cluster's store has them ------------------------------------------------------------

    def create(self, name: str, obj: Obj) -> Obj:
        """Create an object; what its kind and version are is added."""
        resource = self.resource(name)
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        made: Obj = self.request("POST", resource.path(obj["metadata"].get("namespace")), body)
        return made

    def get(self, name: str, namespace: str | None, object_name: str) -> Obj:
        found: Obj = self.request("GET", self.resource(name).path(namespace, object_name))
        return found

    def list(self, name: str, namespace: str | None = None, **query: str) -> list[Obj]:
        path = self.resource(name).path(namespace)
        found: list[Obj] = self.request("GET", f"{path}?{urlencode(query)}" if query else path)["items"]
        return found

    def patch(
        self, name: str, namespace: str | None, object_name: str, patch: Obj, subresource: str | None = None
    ) -> Obj:
        """Merge-patch an object, or its status."""
        path = self.resource(name).path(namespace, object_name, subresource or "")
        done: Obj = self.request("PATCH", path, patch, MERGE)
        return done

    def update(self, name: str, obj: Obj, subresource: str | None = None) -> Obj:
        metadata = obj["metadata"]
        path = self.resource(name).path(metadata.get("namespace"), metadata["name"], subresource or "")
        done: Obj = self.request("PUT", path, obj)
        return done

    def delete(self, name: str, namespace: str | None, object_name: str, *, grace_period: int | None = None) -> None:
        query = "" if grace_period is None else f"?gracePeriodSeconds={grace_period}"
        self.request("DELETE", self.resource(name).path(namespace, object_name) + query)

    def clear(self, name: str, namespace: str | None = None) -> None:
        """Delete all objects of a resource at once, in a namespace where it has those."""
        self.request("DELETE", f"{self.resource(name).path(namespace)}?gracePeriodSeconds=0")

    def apply(self, obj: Obj, *, dry_run: bool = False) -> Obj:
        """Apply a manifest on the server's side, as ``kubectl apply --server-side`` does."""
        group, _, version = obj["apiVersion"].rpartition("/")
        base = f"/apis/{group}/{version}" if group else f"/api/{version}"
        found = next(
            each
            for each in self.request("GET", base)["resources"]
            if each["kind"] == obj["kind"] and "/" not in each["name"]
        )
        resource = Resource(base, found["name"], obj["apiVersion"], obj["kind"], found["namespaced"])
        query = "?fieldManager=tests&force=true" + ("&dryRun=All" if dry_run else "")
        path = resource.path(obj["metadata"].get("namespace", "default"), obj["metadata"]["name"]) + query
        done: Obj = self.request("PATCH", path, obj, APPLY)
        return done

    def token(self, namespace: str, account: str, *, audience: str = "", pod: Obj | None = None) -> str:
        """A token of a ServiceAccount for an hour, bound to a pod where one is given, as kubelets ask for them."""
        spec: Obj = {"expirationSeconds": 3600, "audiences": [audience] if audience else None}
        if pod is not None:
            spec["boundObjectRef"] = {
                "apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"],
            }  # fmt: skip
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        token: str = self.request("POST", path, asked)["status"]["token"]
        return token
