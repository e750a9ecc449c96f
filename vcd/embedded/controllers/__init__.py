"""The controllers of kube-controller-manager and Volcano that workloads on the embedded cluster need."""
