"""The benchmarks. The garbage collector is configured as in the daemon."""

from vcd.daemon.process import tune_garbage_collection

tune_garbage_collection()
