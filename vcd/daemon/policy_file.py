"""Reads the configuration file at start, follows its changes, and refuses invalid versions.

After a refusal the last valid version stays in force. A version is in force for sessions only once it is in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from vcd.kube.kube_connection import ConfigurationError
from vcd.kube.lru import LruCache
from vcd.model.events import PolicyLoaded
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.policy import Policy, PolicyError
from vcd.scheduling.framework.registry import plugins
from vcd.scheduling.session.outside import without_secrets
from vcd.state.records import Settings

_log = structlog.get_logger(__name__)
_RETAINED = 8
"""Number of retained earlier versions: sessions that were decided under them may still be carried out."""


class PolicyFile:
    """A policy that follows its file. ``path`` None means vc-scheduler's compiled-in default."""

    def __init__(self, path: Path | None, settings: Settings) -> None:
        self.path = path
        self._settings = settings
        self._seen: str | None = None
        self._policies: LruCache[str, Policy] = LruCache(_RETAINED)
        self._unreadable = self._bad = ""
        """Why the file cannot be read, and why the last text was refused; empty if it was not."""
        self.policy: Policy
        """The policy in force, after ``load``."""

    @property
    def refused(self) -> str:
        """Return why the current file is not in force, without its path; empty if it is."""
        return self._unreadable.partition(f"{self.path} ")[2] or self._bad

    def load(self, logged: PolicyLoaded | None = None) -> PolicyLoaded:
        """Read the file when a service starts, or a term begins. ``logged`` is the version in force by the log.

        If the file is invalid or cannot be read, the version in the log stays in force, or the last one that this
        process read. Raises PolicyError, or ConfigurationError, if there is neither.
        """
        self._seen = None  # so that `follow` accepts the file once it is readable, even if it did not change
        try:
            self._seen = self._read()
            self.policy = read_policy(self._seen)
        except (ConfigurationError, PolicyError) as error:
            before = self._of_log(logged) or getattr(self, "policy", None)
            if before is None:
                raise
            self.policy = before
            self._refuse(error)
        else:
            self._accept()
        return self._event()

    def _of_log(self, logged: PolicyLoaded | None) -> Policy | None:
        """Return the policy that a log states, or None if it states none or an invalid one.

        The log has no passwords, so the policy has them only if this process read the same version from its file.
        """
        if logged is None:
            return None
        try:
            return self._policies.get(logged.digest) or read_policy(logged.text)
        except PolicyError as error:
            _log.error("the configuration in force cannot be read from the log", reason=str(error))
            return None

    def _read(self) -> str | None:
        try:
            return None if self.path is None else self.path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"--scheduler-conf {self.path} cannot be read: {why}") from error

    def named(self, digest: str) -> Policy:
        """Return the policy of a digest: the state may still be under the one before the newest."""
        return self._policies.get(digest) or self.policy

    def depends_on(self, question: str) -> bool:
        """Return whether an active plugin depends on the answers to a question."""
        known = plugins()
        return any(question in known[option.name].outside for tier in self.policy.tiers for option in tier)

    async def follow(
        self,
        changed: Callable[[PolicyLoaded], Awaitable[None]],
        refused: Callable[[str], None],
        period: float = 1.0,
    ) -> None:
        """Check the file every ``period`` seconds until cancelled. A mounted ConfigMap changes by its link.

        ``changed`` is awaited with the event of each new version; ``refused`` is called with the error of an invalid
        one.
        """
        if self.path is None:
            return
        while True:
            await asyncio.sleep(period)
            try:
                text = await asyncio.to_thread(self._read)
                self._unreadable = ""
                if text == self._seen:
                    continue
                self._seen = text
                self.policy = await asyncio.to_thread(read_policy, text)
            except (ConfigurationError, PolicyError) as error:
                if str(error) == self._unreadable:  # report a missing file once
                    continue
                self._refuse(error)
                refused(str(error))
                continue
            self._accept()
            _log.info("configuration reloaded", digest=self.policy.digest)
            await changed(self._event())

    def _refuse(self, error: ConfigurationError | PolicyError) -> None:
        if isinstance(error, ConfigurationError):
            self._unreadable = str(error)
        else:
            self._bad = str(error)
        _log.error("configuration refused; the one in force stays", reason=str(error), digest=self.policy.digest)

    def _accept(self) -> None:
        self._unreadable = self._bad = ""
        for warning in (*self.policy.warnings, *self.policy.misfits):
            _log.warning("configuration", warning=str(warning))

    def _event(self) -> PolicyLoaded:
        """Return the policy as an event without passwords, on which no decision depends."""
        self._policies.set(self.policy.digest, self.policy)
        return PolicyLoaded(self.policy.digest, without_secrets(self.policy.text), self._settings.as_text())
