"""How a replica authenticates: a kubeconfig names a token file, which a kubelet renews; and which tokens are valid."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

# once for all simulations of a process; otherwise each would wait for it
import kubernetes_asyncio.config  # noqa: F401


class Access:
    """A replica's tokens: which one is in the file that its kubeconfig names, and how long each is valid."""

    def __init__(self, folder: Path, name: str, now: Callable[[], float]) -> None:
        self.kubeconfig = folder / f"{name}.kubeconfig"
        self._name, self._now = name, now
        self._file = folder / f"{name}.token"
        self._until: dict[str, float] = {}
        """The end of each token's validity (simulated seconds)."""
        self._newest = ""
        self.issue()
        self.renew()
        self.kubeconfig.write_text(json.dumps(self._configuration()))

    def _configuration(self) -> dict[str, object]:
        cluster = {"server": f"http://{self._name}"}
        return {
            "apiVersion": "v1", "kind": "Config", "current-context": "simulated",
            "clusters": [{"name": "simulated", "cluster": cluster}],
            "users": [{"name": "scheduler", "user": {"tokenFile": str(self._file)}}],
            "contexts": [{"name": "simulated", "context": {"cluster": "simulated", "user": "scheduler"}}],
        }  # fmt: skip

    def issue(self, overlap: float = math.inf) -> None:
        """Issue a new token without writing it to the file. Older tokens stay valid for ``overlap`` seconds."""
        until = self._now() + overlap
        self._until = {token: min(until, end) for token, end in self._until.items()}
        self._newest = f"{self._name}-{len(self._until) + 1}"
        self._until[self._newest] = math.inf

    def renew(self) -> None:
        """Write the newest token to the file."""
        self._file.write_text(f"{self._newest}\n")

    def holds(self, token: str) -> bool:
        """Return whether a token is valid now."""
        return self._until.get(token, -math.inf) > self._now()
