"""Reading the log of a running cluster: through its API server, by a person's own rights, into a file of their own."""
