"""vcd against a real kube-apiserver and etcd, and where they are given, Volcano's own programs: ``make test-real``."""
