"""The schemas of what ``-o json`` prints, which docs/generate.py writes into docs/schemas."""

from __future__ import annotations

from typing import Any

import msgspec

from vcd.cli.conf import Configuration, ConfigurationChange, ConfigurationCheck
from vcd.cli.explain import JobExplanation
from vcd.cli.log import LogCompaction, LogEvent, LogSession, WrittenLog
from vcd.cli.logrestore import LogVerification, RestoredLog
from vcd.cli.plan import Plan
from vcd.cli.printing import API_VERSION
from vcd.cli.replay import Replay
from vcd.cli.simview import SimulationSummary
from vcd.timetravel.bisect import JobBisection, WaitsBisection
from vcd.timetravel.clusterchanges import ClusterChanges
from vcd.timetravel.joblist import Jobs
from vcd.timetravel.overview import Glance
from vcd.timetravel.shadow.shadow_comparison import ShadowComparison
from vcd.timetravel.whatif.forecasts import Submission
from vcd.timetravel.whatif.gate import GateResult
from vcd.timetravel.whatif.runs import Comparison
from vcd.timetravel.whatif.sweep import Sweep
from vcd.timetravel.why.eviction_explanation import EvictionExplanation
from vcd.timetravel.why.jobdifference import JobDifference
from vcd.timetravel.why.lostpodhours import FirstCauses
from vcd.timetravel.why.order_explanation import OrderExplanation
from vcd.timetravel.why.queueanswer import QueueExplanation
from vcd.timetravel.why.session_explanation import SessionExplanation


def documents() -> dict[str, type[msgspec.Struct]]:
    """Return the document that each command prints."""
    return {
        "bisect job": JobBisection,
        "bisect waits": WaitsBisection,
        "conf check": ConfigurationCheck,
        "conf diff": ConfigurationChange,
        "conf show": Configuration,
        "explain changes": ClusterChanges,
        "explain cluster": FirstCauses,
        "explain diff": JobDifference,
        "explain eviction": EvictionExplanation,
        "explain job": JobExplanation,
        "explain order": OrderExplanation,
        "explain pod": JobExplanation,
        "explain queue": QueueExplanation,
        "explain session": SessionExplanation,
        "gate": GateResult,
        "jobs": Jobs,
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
        "shadow": ShadowComparison,
        "sim": SimulationSummary,
        "sweep": Sweep,
        "top": Glance,
        "whatif": Comparison,
        "whatif --submit": Submission,
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
