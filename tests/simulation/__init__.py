"""The whole system in one process on simulated time: replicas, API server, kubelets, users, and faults."""
