"""The benchmarks. As in the daemon, the garbage collector seldom looks at all objects."""

from vcd.daemon.process import tune_garbage_collection

tune_garbage_collection()
