"""Access of commands to a cluster with the user's own rights: its log (--from-cluster), or a list of its objects."""
