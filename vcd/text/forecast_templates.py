"""When a job starts, what else it changes, and on which assumptions: templates of a forecast's sentences by code."""

from __future__ import annotations

from typing import Final

from vcd.text.templates import Templates

FORECASTS: Final = Templates(
    {
        "now": "job {name}: {placed} can be placed at once{why}",
        "never": "job {name} never starts{why}",
        "at once": "job {name} starts at once: {places}",
        "unknown": "job {name}: {abstention}",
        "seldom": "job {name} starts in {runs}, after {low} or more; in the others it still waits{why}",
        "starts": "job {name} starts {time}, after {after}",
        "abstention": "cannot be told: nothing like {unlike} has ended yet",
        # details
        "as of": "as of {time}{session}{runs}",
        "job": "job {name} in queue {queue}: {pods}, at least {minimum} together",
        "run time": "  each runs {median}{bounds}",
        "run time assumed": "  each is taken to run {median}",
        "run time source": "  as {of} ({count} ended)",
        "placed": "  at once: {places}",
        "waits": "  waits at first: {reasons}",
        "ends": "  ends {time}, after {after}{runs}",
        "waits on": "  still waits in {runs}{why}",
        # other jobs
        "evicted": "evicted for it in {runs}: {pod} of job {job}{reason}",
        "more": "and {count} more {what}",
        "no victims": "no pod is evicted for it, and no job that waits starts more than {longer} later",
        # spans of time
        "after": "{median}",
        "after between": "{median} ({low} to {high} in four of five cases)",
        "after open": "{median} ({low} or more in four of five cases)",
        "after unknown": "{low} or more",
        # a job that waits already
        "started": "it does not wait: it started {time}",
        "never alone": "it never starts, not even alone on this cluster",
        "probable": "it starts {time}, as far as can be told",
        "provided": "provided that {assumptions}",
        # assumptions
        "arrivals": "jobs continue to arrive like the last {count}, which came in {span}",
        "no arrivals": "no job arrives later (the log has too few arrivals to estimate a rate)",
        "endless": "{names} do not end: nothing like them has ended yet",
        "vague": "{count} of {pods} run like work of other kinds (fewer than {enough} of their own ended)",
        "horizon": "no run is simulated for more than {span}",
        "without pods": (
            "{groups} without pods yet: taken are such as the last group had that asked the same, else what their"
            " minimum asks for"
        ),
        # the work that run times are estimated from
        "work named": "work named {name}",
        "work named equal": "work named {name} that asks for the same",
        "work in": "work of namespace {name}",
        "work in equal": "work of namespace {name} that asks for the same",
        "work": "all work",
        "accuracy": (
            "learnt on the {learned} runs that ended first, estimates are off by a factor of {ratio} in the median of"
            " the {tested} others, and {within} of these lie within their bounds (80% are meant)"
        ),
    }
)
