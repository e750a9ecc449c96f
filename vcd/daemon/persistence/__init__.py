"""The path of events into log and state, and what the log needs over time: checkpoints, retention, the archive."""
