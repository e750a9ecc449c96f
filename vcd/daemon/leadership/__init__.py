"""When this replica may decide and write: its terms under the Lease, and the interlock against other schedulers."""
