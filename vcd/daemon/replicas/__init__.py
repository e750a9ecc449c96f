"""Replicas that share one log (``--replicas-address``): the leader serves its log, the others follow it."""
