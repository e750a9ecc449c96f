"""Whose log a log is, how far it lags, and remarks on it: templates of sentences by code."""

from __future__ import annotations

from typing import Final

from vcd.text.templates import Templates

LOGS: Final = Templates(
    {
        # the standing of a log among those of replicas
        "reader": "read from outside, {lag}; {lease}",
        "quiet": "{name}, which wrote this log, has written nothing for {age}: it ended or stands still; {lease}",
        "leader": "the leader's log: {lease}",
        "apart": "{name}'s own log, and what others decide is in theirs; {lease}",
        "alone": "the log of {name}, which follows no replica yet; {lease}",
        "follower": "the log of {name}, a follower: {lag}; {lease}",
        "lag unknown": "it does not have everything yet that {source} logged{known}",
        "lag": "it had all that {source} logged {behind} ago",
        "lag lacks": "it lacks what {source} logged in the last {behind}{known}",
        "known": " ({events} are known)",
        "lease unseen": "who holds Lease {lease} was never seen",
        "lease": "{holder} holds Lease {lease}",
        "lease past": "{holder} held Lease {lease} {seen} ago, when it was last seen",
        "ends": "the log ends at {time}: {standing}",
        # remarks
        "shadow": "a shadow's log: it has what vcd would have bound and evicted; nothing was carried out (vcd shadow)",
        "foreign": (
            "another scheduler binds pods of vcd's schedulerName: {pods} in the leader's last term"
            " (vcd log ls --type foreign)"
        ),
    }
)
