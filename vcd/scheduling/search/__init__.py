"""Where a task can go: predicates and scores over all nodes, kept up to date by what a placement changes."""
