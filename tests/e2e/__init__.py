"""The daemon over HTTP against the embedded API server, each replica in a process of its own."""
