"""The schemas of what ``-o json`` prints, which docs/generate.py writes into docs/schemas."""

from __future__ import annotations

from typing import Any

import msgspec

from vcd import api
from vcd.cli.documents import (
    API_VERSION,
    Configuration,
    ConfigurationChange,
    ConfigurationCheck,
    JobExplanation,
    LogCompaction,
    LogEvent,
    LogSession,
    LogVerification,
    Plan,
    Replay,
    RestoredLog,
    WrittenLog,
)
from vcd.cli.simview import SimulationSummary


def documents() -> dict[str, type[msgspec.Struct]]:
    """Return the document that each command prints."""
    return {
        "bisect job": api.JobBisection,
        "bisect waits": api.WaitsBisection,
        "conf check": ConfigurationCheck,
        "conf diff": ConfigurationChange,
        "conf show": Configuration,
        "explain changes": api.ClusterChanges,
        "explain cluster": api.FirstCauses,
        "explain diff": api.JobDifference,
        "explain eviction": api.EvictionExplanation,
        "explain job": JobExplanation,
        "explain order": api.OrderExplanation,
        "explain pod": JobExplanation,
        "explain queue": api.QueueExplanation,
        "explain session": api.SessionExplanation,
        "gate": api.GateResult,
        "jobs": api.Jobs,
        "log compact": LogCompaction,
        "log export": WrittenLog,
        "log ls": LogEvent,
        "log ls --sessions": LogSession,
        "log restore": RestoredLog,
        "log restore --check": LogVerification,
        "log tail": LogEvent,
        "log verify": LogVerification,
        "plan": Plan,
        "replay": Replay,
        "shadow": api.ShadowComparison,
        "sim": SimulationSummary,
        "sweep": api.Sweep,
        "top": api.Glance,
        "whatif": api.Comparison,
        "whatif --fill": api.Filling,
        "whatif --submit": api.Submission,
    }


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a document."""
    (reference,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    name = reference["$ref"].rpartition("/")[2]
    own = dict(parts[name])
    fields, required = dict(own["properties"]), list(own.get("required", ()))
    if "kind" in fields:
        fields = {"of": fields.pop("kind"), **fields}
        required = ["of" if field == "kind" else field for field in required]
    head = {"apiVersion": {"const": API_VERSION}, "kind": {"const": kind.__name__}}
    own |= {"properties": head | fields, "required": [*head, *required]}
    others = {key: part for key, part in sorted(parts.items()) if key != name}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **own, **({"$defs": others} if others else {})}
