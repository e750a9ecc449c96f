"""Faults of the installation: what keeps vcd from scheduling and is not the fault of a job."""
