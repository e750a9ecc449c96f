"""What the API server holds: watches of all kinds, reads that must be current, and outcomes that no watch shows."""
