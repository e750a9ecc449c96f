"""The configuration file: read at start, watched, and in force only when it is good."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from vcd.kube.connection import ConfigurationError
from vcd.kube.recent import Recent
from vcd.model.events import PolicyLoaded
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework.policy import Policy, PolicyError
from vcd.scheduling.framework.registry import plugins
from vcd.scheduling.session.outside import without_secrets
from vcd.state.records import Settings

_log = structlog.get_logger(__name__)
_KEPT = 8
"""Versions that were in force and are known still: what was decided under one may be on its way yet."""


class PolicyFile:
    """A policy that follows its file; ``path`` None is vc-scheduler's compiled-in default.

    ``changed`` is awaited with the event of each new version, ``refused`` is told why a version is not taken.
    """

    def __init__(self, path: Path | None, settings: Settings) -> None:
        self.path = path
        self._settings = settings
        self._seen: str | None = None
        self._policies: Recent[str, Policy] = Recent(_KEPT)
        self.policy: Policy
        """The one in force; there is none before ``load``."""

    def load(self, logged: PolicyLoaded | None = None) -> PolicyLoaded:
        """Read the file when a service begins, or takes the lead after one by which ``logged`` was in force. Raises
        PolicyError, or ConfigurationError when it cannot be read, unless this process had a good version before: then
        what was in force stays."""
        self._seen = None  # what cannot be read now is taken when it can, be it what it was before
        try:
            self._seen = self._read()
            self.policy = read_policy(self._seen)
        except (ConfigurationError, PolicyError) as error:
            if not hasattr(self, "policy"):
                raise
            if logged is not None:
                self.policy = self._of_log(logged)
            self._refuse(str(error))
        else:
            self._warn()
        return self._event()

    def _of_log(self, logged: PolicyLoaded) -> Policy:
        """The one that a log says was in force, without the passwords of one that this process never read."""
        try:
            return self._policies.get(logged.digest) or read_policy(logged.text)
        except PolicyError as error:
            _log.error("the configuration in force cannot be read from the log", reason=str(error))
            return self.policy

    def _read(self) -> str | None:
        try:
            return None if self.path is None else self.path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"--scheduler-conf {self.path} cannot be read: {error}") from error

    def named(self, digest: str) -> Policy:
        """The policy of a digest: the one that the state is under may be a moment behind the newest one."""
        return self._policies.get(digest) or self.policy

    def minds(self, question: str) -> bool:
        """Whether a plugin that is on decides by the answers to a question."""
        known = plugins()
        return any(question in known[option.name].questions for tier in self.policy.tiers for option in tier)

    async def follow(
        self,
        changed: Callable[[PolicyLoaded], Awaitable[None]],
        refused: Callable[[str], None],
        period: float = 1.0,
    ) -> None:
        """Look at the file each ``period`` seconds, until cancelled: a mounted ConfigMap changes by its link."""
        if self.path is None:
            return
        unreadable = ""
        while True:
            await asyncio.sleep(period)
            try:
                text = await asyncio.to_thread(self._read)
                unreadable = ""
                if text == self._seen:
                    continue
                self._seen = text
                self.policy = await asyncio.to_thread(read_policy, text)
            except (ConfigurationError, PolicyError) as error:
                if str(error) == unreadable:  # a file that is gone is so at each look
                    continue
                unreadable = str(error) if isinstance(error, ConfigurationError) else ""
                self._refuse(str(error))
                refused(str(error))
                continue
            self._warn()
            _log.info("configuration reloaded", digest=self.policy.digest)
            await changed(self._event())

    def _refuse(self, reason: str) -> None:
        _log.error("configuration refused; the one in force stays", reason=reason, digest=self.policy.digest)

    def _warn(self) -> None:
        for warning in (*self.policy.warnings, *self.policy.misfits):
            _log.warning("configuration", warning=str(warning))

    def _event(self) -> PolicyLoaded:
        """The one in force as a log keeps it: what is decided by it does not depend on its passwords."""
        self._policies.set(self.policy.digest, self.policy)
        return PolicyLoaded(self.policy.digest, without_secrets(self.policy.text), self._settings.as_text())
