"""Work outside the event loop, and long work on it in slices. No package of the daemon is below this one."""
