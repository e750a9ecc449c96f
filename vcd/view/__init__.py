"""The read-only web page of an event log."""
