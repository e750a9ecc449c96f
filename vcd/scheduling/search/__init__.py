"""Search for nodes: predicates and scores over all nodes, updated only for the nodes that a placement changes."""
