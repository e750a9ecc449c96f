"""Why: stories, sessions, queues, evictions and orders told from a log, and what would have been enough."""
