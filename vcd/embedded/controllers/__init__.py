"""The controllers that workloads on the embedded cluster need, as kube-controller-manager and Volcano's have them."""
