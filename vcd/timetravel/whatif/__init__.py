"""What a log's workload would have become, or will become: the same core on a simulated cluster."""
