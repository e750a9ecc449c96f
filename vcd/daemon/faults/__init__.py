"""Faults of the installation: conditions that prevent vcd from scheduling and are not caused by a job."""
