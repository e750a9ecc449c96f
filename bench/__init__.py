"""The benchmarks. As in the daemon, the garbage collector seldom looks at all objects."""

from vcd.daemon.service import collect_seldom

collect_seldom()
