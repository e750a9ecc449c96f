"""Eviction: which jobs may preempt or reclaim, which pods may be victims, and which tasks are nominated."""
