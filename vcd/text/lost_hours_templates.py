"""The causes that cost jobs most pod-hours: templates of sentences by code."""

from __future__ import annotations

from typing import Final

from vcd.text.templates import Templates

LOST: Final = Templates(
    {
        "where": "the interval, {begin} to {end} (sessions {first} to {last})",
        "where day": "the log's last 24 h, {begin} to {end} (sessions {first} to {last})",
        "none": "no pod waited in {where}",
        "total": "{hours} pod-hours lost by {jobs} in {where}",
        "cause": "{number}. {cause}{about}: {hours} h ({share}), {jobs}",
        "worst": "     most by {job}: {text}",
        "remedy": "     remedy: {remedy}",
        "remedy verified": "     remedy: {remedy} (verified)",
        "more": "and {causes} more",
        "examined": "examined: {jobs} with {share} of the hours{likened}{logged}",
        "likened": "; {share} counted as the wait of one of these for the same reasons in the same queue",
        "logged": "; {share} counted as the logged reasons say",
        "waited": "it waited {span}: {why}",
    }
)
