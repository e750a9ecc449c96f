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
    }
)
