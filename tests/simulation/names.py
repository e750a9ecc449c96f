"""The invariants: the meaning of each, by its name. Violations are reported under the name."""

from __future__ import annotations

NAMES: dict[str, str] = {
    # --- who leads
    "written by who leads": "Each writer holds the Lease, within its term, under the epoch of its decision.",
    "decided by who leads": "Each replica that decides holds the Lease.",
    "a new leader waits": "No replica decides while calls of the previous leader may be in flight.",
    "listed first": "A new leader lists every kind before its first session.",
    "an epoch is one term": "No two leaders share an epoch, and epochs only increase.",
    "one leader": "At rest there is exactly one leader.",
    # --- what is done
    "intended first": "A bind or an eviction is in the log before its API call.",
    "outcomes are true": "The outcome of an operation in a log is what the server did.",
    "bound once": "No pod is bound to a second node.",
    "bound there": "A bound pod, and its node, exist.",
    "no node over": "No node's pods exceed its allocatable.",
    "no queue over": "No queue exceeds its capability.",
    "no card quota over": "No queue exceeds its quota of cards.",
    "no card shared": "No card is assigned to a second pod while the first exists.",
    "no namespace over": "No group is admitted beyond its namespace's quota.",
    "gangs whole": "No gang is bound below its minimum, except one that is released in the stated time.",
    "no group beyond its tier": "Every group with a hard limit is bound within a HyperNode of an allowed tier.",
    "no eviction in vain": "No pod is evicted for a group that fits no allowed HyperNode.",
    "no protected pod evicted": "No system pod, and no pod that is declared as not preemptable, is evicted.",
    "no budget overspent": "No eviction exceeds a disruption budget.",
    "nobody evicted twice": "No replacement of an evicted pod is evicted without new input.",
    # --- what is asked of the server
    "calls are bounded": "Calls stay within their rates, whatever the server answers.",
    "Retry-After is kept": "A call is not repeated before the server's Retry-After.",
    "one watch a kind": "No program watches a kind twice.",
    "watches go on": "No watch starts at a version before the known one.",
    "what failed is tried again": "If writing a pod's condition fails, it is repeated while the pod waits.",
    "conflicts are read anew": "After a conflict, an object is read before it is written again.",
    "at rest": "A program at rest makes few calls and has few tasks.",
    "comes to rest": "A run comes to rest.",
    "comes to an end": "A run ends.",
    # --- what is known and told
    "state is the server's": "A leader's state equals the server's objects.",
    "all that can be is done": "At rest the slow reference would do nothing more.",
    "stories end well": "Every expectation of a script is met at its stated time.",
    "done soon": "Binds, evictions, admissions and a new leader follow their cause within a stated time.",
    "reasons are true": "Every displayed reason is true.",
    "reasons are declared": "Every reason is declared by its plugin.",
    "others' conditions stay": "A write does not change conditions of other writers.",
    "who waits is told": "Each waiting pod has a condition that states it.",
    "nothing is kept of what is gone": "No memory is retained for deleted objects and ended calls.",
    "files are closed": "At rest a program has only the files of its log open.",
    "no series of what is gone": "Metrics have series of existing objects only.",
    # --- logs and programs
    "sound log": "Every remaining log verifies.",
    "logged for good": "Everything done or acknowledged is in the log after a crash.",
    "state is the log, folded": "Checkpoint and tail fold to the same state as the whole log.",
    "a damaged log is refused": "A log that a disk damaged is not accepted as complete.",
    "replay": "Every session replays to the same plan, byte for byte.",
    "logs merge": "The logs of all replicas can be merged into one.",
    # --- replicas of one log
    "log first": "A daemon folds only events that are on its disk.",
    "said when it is durable": "Every event that a follower acknowledges is on its disk.",
    "a copy is the leader's log": "A follower's events equal its leader's with the same numbers, byte for byte.",
    "of one version": "No replica follows one of another protocol version.",
    "elsewhere before it is done": "A session's calls wait until a follower that keeps up has the session.",
    "nobody is waited for too long": "A leader waits at most a second for a follower, and then skips a late one.",
    "what others have is taken over": "The next leader requests the logs of all known replicas, and has their events.",
    "all have one log": "At rest all follow the leader, keep up, and have the same log and state.",
    "configurations go on": "The next leader does not decide by an earlier, replaced configuration.",
    "known to who leads next": "Events that all replicas had stay in their log.",
    "nothing decided is lost": "An executed session is in the shared log, or in a log stored apart.",
    "all come up": "At rest each replica's program is ready.",
    "no program ends by itself": "No program ends without a request.",
    "no program ends with a traceback": "A program that ends logs the reason.",
    "nothing fails unseen": "No exception is lost.",
    "the simulation works": "No error occurs outside the programs.",
}

ITSELF = "the simulation works"
"""The invariant that indicates a defect of the simulation, not of vcd."""
