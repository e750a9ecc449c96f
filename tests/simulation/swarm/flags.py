"""Flags of vcd run, drawn, what of the cluster goes with them, and how long all takes to come to rest."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.script import Act
from tests.simulation.swarm.draw import Draw

CALM = 75.0
"""Seconds in which all has to come to rest."""
RELEASED = 100.0
"""Seconds in which gangs are released that are placed in part, and in which that is seen."""
TIMES: tuple[dict[str, str], ...] = (
    {},
    {},
    {"leader-elect-lease-duration": "6s", "leader-elect-renew-deadline": "4s", "leader-elect-retry-period": "1s",
     "request-timeout": "1s"},
    {"leader-elect-lease-duration": "3s", "leader-elect-renew-deadline": "2s", "leader-elect-retry-period": "300ms",
     "request-timeout": "800ms"},
    {"leader-elect-lease-duration": "15s", "leader-elect-renew-deadline": "5s", "request-timeout": "9s"},
)  # fmt: skip
"""Times of the election and of requests that go together."""
SINGLE: dict[str, tuple[str, ...]] = {
    "checkpoint-interval": ("20", "100", "500"),
    "log-retention-age": ("20s", "1m"),
    "log-retention-size": ("64k", "256k"),
    "replay-every": ("0", "3", "20"),
    "unschedulable": ("all",),
    "placements": ("1", "3"),
    "schedule-period": ("300ms",),
    "seed": ("7",),
    "default-queue": ("queue-0",),
    "leader-elect-list-deadline": ("5s",),
    "leader-elect-stale-deadline": ("10s",),
    "node-selector": ("topology.kubernetes.io/zone:a",),
    "job-series": ("0", "3"),
}
"""Flags by themselves, and what they may be."""
OFTEN = frozenset({"checkpoint-interval", "log-retention-age", "log-retention-size", "replay-every"})
_FOREIGN = frozenset({"bind_ours", "bind_pod", "take_lease"})
"""Acts by which another scheduler is at work."""
_TERMS = frozenset({"clock_back", "slow_renewals", "term_amid_calls", "take_lease", "two_leaders", "two_leaders_at"})
"""Acts that come to something where a term ends within the storm only,"""
_LONG = 30.0
"""and for how many seconds it has to last, that the longer terms do."""
RARE = frozenset({"default-queue", "node-selector", "placements", "schedule-period"})
CONTROLLERS = {"podgroup": "pg-controller", "queue": "queue-controller"}
"""What --controllers names, and whose work that is on other clusters."""


def flags(draw: Draw, acts: list[Act]) -> tuple[dict[str, list[str]], list[Act]]:
    """The flags of all replicas, and acts that make the cluster one for which they are meant."""
    given = times(draw, acts)
    for name, texts in SINGLE.items():
        if draw.often(0.04 if name in RARE else 0.4 if name in OFTEN else 0.15):
            given[name] = [draw.pick(texts)]
    if "placements" in given:  # the other bound of a session's work
        given["kinds-per-namespace"] = given["placements"]
    if any(act.what == "keep_busy" for act in acts) and draw.often(0.5):  # a state is kept while another one comes
        given["checkpoint-interval"] = ["20"]
    if draw.often(0.25):
        given |= {"kube-api-qps": [draw.pick(("2", "3", "7", "10", "50"))], "kube-api-burst": [draw.pick(("1", "5"))]}
    # half of the sessions are begun by what changes; each second without a change costs a session that decides nothing
    if draw.often(0.6):
        given.setdefault("schedule-period", ["5s"])
    controllers, more = controlled(draw, draw.some(list(CONTROLLERS), 0.7) if draw.often(0.15) else ())
    return given | controllers | beside_others(draw, acts), more


def controlled(draw: Draw, controllers: Sequence[str]) -> tuple[dict[str, list[str]], list[Act]]:
    """The flag by which vcd does the work of some controllers, and acts by which nobody else does."""
    given = {"controllers": [",".join(controllers)]} if controllers else {}
    return given, [draw.act(0.0, "retire", CONTROLLERS[name]) for name in controllers]


def times(draw: Draw, acts: list[Act], *, short: bool = False) -> dict[str, list[str]]:
    """Those of the election and of requests: ``short`` ones, also where terms are to end within the storm."""
    short = short or (draw.storm < _LONG and any(act.what in _TERMS for act in acts))
    return {name: [text] for name, text in draw.pick(TIMES[2:4] if short else TIMES).items()}


def beside_others(draw: Draw, acts: list[Act]) -> dict[str, list[str]]:
    """Where another scheduler is at work: without them namespaces would be held back for five minutes."""
    if not any(act.what in _FOREIGN for act in acts):
        return {}
    return {"lead-beside-others": ["true"]} if draw.often(0.5) else {"others-quiet-period": ["20s"]}


def storm_of(draw: Draw, acts: list[Act]) -> float:
    """The seconds in which acts happen: some scenes take longer than what else was drawn."""
    return max(draw.storm, *(act.at for act in acts))


def calm_after(acts: list[Act]) -> float:
    """The seconds in which all has to come to rest after some acts."""
    return RELEASED if any(act.what == "refuse_binds" for act in acts) else CALM
