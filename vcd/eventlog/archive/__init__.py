"""Archives: segments of the log, shipped to a directory or an S3-compatible store, and restored from there."""
