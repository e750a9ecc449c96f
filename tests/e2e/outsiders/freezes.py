"""A plugin of somebody else's: no job of a namespace starts while an object of a kind of its own forbids it."""

from vcd.model.kinds import Kind
from vcd.model.objects import Object, Projected
from vcd.model.reasons import Cause, ReasonCode
from vcd.scheduling.framework.plugin import Plugin


class FreezeSpec(Projected, frozen=True):
    because: str = ""


class Freeze(Object, frozen=True):
    spec: FreezeSpec = FreezeSpec()


FROZEN = ReasonCode("namespace-frozen", Cause.GATED, "namespace is frozen")


class FreezesPlugin(Plugin):
    """Keeps the jobs of a frozen namespace out."""

    name = "freezes"
    kinds = (Kind("Freeze", "example.com", "v1", "freezes", True, Freeze),)

    def open(self, session):
        """Which namespaces are frozen, and why."""
        found = session.objects("Freeze", Freeze)
        self.frozen = {freeze.metadata.namespace: freeze.spec.because for freeze in found.values()}

    def job_valid(self, job):
        """Whether the job's namespace is frozen."""
        namespace = job.key.partition("/")[0]
        if namespace not in self.frozen:
            return None
        return FROZEN({"because": self.frozen[namespace]})
