"""The invariants and their descriptions, by the name that a violation prints."""

from __future__ import annotations

NAMES: dict[str, str] = {
    # --- who leads
    "written by who leads": "Who writes holds the Lease, within its term, under the epoch that it decided under.",
    "decided by who leads": "Who decides holds the Lease.",
    "a new leader waits": "Nobody decides while calls of the leader before may be under way.",
    "listed first": "Who begins to lead lists every kind before its first session.",
    "an epoch is one term": "No epoch is of two leaders, and none falls.",
    "one leader": "At rest there is one.",
    # --- what is done
    "intended first": "A bind or an eviction is in the log before it is called for.",
    "outcomes are true": "What a log says became of an operation is what the server did.",
    "bound once": "No pod is bound to a second node.",
    "bound there": "What is bound, and where to, is there.",
    "no node over": "No node has more than it gives.",
    "no queue over": "No queue has more than its capability.",
    "no card quota over": "No queue has more cards than its quota.",
    "no card shared": "No card is given to a second pod while the first is there.",
    "no namespace over": "No group is admitted beyond its namespace's quota.",
    "gangs whole": "No gang is bound below its minimum, or is released in the stated time.",
    "no group beyond its tier": "Nothing is bound with which a hard group is in no HyperNode of an allowed tier.",
    "no eviction in vain": "Nothing is evicted for a group that no allowed HyperNode could hold.",
    "no protected pod evicted": "Nothing is evicted that is the system's, or says that it is not preemptable.",
    "no budget overspent": "Nothing is evicted beyond a disruption budget.",
    "nobody evicted twice": "Nothing is evicted again without new input.",
    # --- what is asked of the server
    "calls are bounded": "Calls keep to their rates, whatever the server answers.",
    "Retry-After is kept": "A server that wants to be asked later is.",
    "one watch a kind": "No kind is watched twice by one program.",
    "watches go on": "No watch begins before what is known.",
    "what failed is tried again": "A pod's condition that met a fault is written again as long as the pod waits.",
    "conflicts are read anew": "What was refused by its version is read before it is written again.",
    "at rest": "Where nothing happens little is called for, and few tasks are left.",
    "comes to rest": "A run comes to rest.",
    "comes to an end": "A run ends.",
    # --- what is known and told
    "state is the server's": "What a leader knows is what the server has.",
    "all that can be is done": "Nothing is left that the slow reference would do.",
    "stories end well": "What a story says has to have happened by a stated time has happened.",
    "done soon": "At rest what is bound, evicted or admitted, and who leads, is so soon after what called for it.",
    "reasons are true": "Every reason that is shown is so.",
    "reasons are declared": "Every reason is one that its plugin declares.",
    "others' conditions stay": "What others wrote as a condition is not changed by a write beside it.",
    "who waits is told": "Each pod that waits says so.",
    "nothing is kept of what is gone": "No memory is kept of objects and calls that are no more.",
    "files are closed": "At rest a program has the files of its log open, and no others.",
    "no series of what is gone": "Metrics tell of what is there.",
    # --- logs and programs
    "sound log": "A log that is left verifies.",
    "logged for good": "What was done, or acknowledged, is in the log after a crash.",
    "state is the log, folded": "Checkpoint and tail make what the whole log does.",
    "a damaged log is refused": "No log that a disk damaged passes for a whole one.",
    "replay": "Every session is decided again, byte for byte.",
    "logs merge": "The logs of all replicas make one.",
    # --- replicas of one log
    "log first": "What a daemon folds is on its disk.",
    "said when it is durable": "What a follower says that it has is on its disk.",
    "a copy is the leader's log": "Byte for byte a follower has what its leader has under the same numbers.",
    "of one version": "No replica follows one whose words it does not know.",
    "elsewhere before it is done": "A session's calls wait for a follower that keeps up.",
    "nobody is waited for too long": "For a second at most, and not soon again for who was late.",
    "what others have is taken over": "Who leads next asks all that it knows, and has what they had.",
    "all have one log": "At rest all follow the leader, keep up, and have the same log and state.",
    "configurations go on": "Who leads next does not decide by a configuration that was given up before.",
    "known to who leads next": "What all replicas had is in the log that they have.",
    "nothing decided is lost": "A session that was done is in the log that all have, or kept beside it.",
    "all come up": "At rest each replica has a program that is ready.",
    "no program ends by itself": "No program ends that nobody told to.",
    "no program ends with a traceback": "A program that ends says why.",
    "nothing fails unseen": "No exception is lost.",
    "the simulation works": "Nothing fails outside of the programs.",
}

ITSELF = "the simulation works"
"""What tells of no defect of vcd."""
