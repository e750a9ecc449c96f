"""The scheduling cycle: when a session is decided, how long plugins may take, and a replay of some sessions."""
