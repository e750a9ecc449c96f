"""Simulations of a log's workload, past or future: the same scheduling core on a simulated cluster."""
