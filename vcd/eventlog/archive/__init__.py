"""The log kept elsewhere: segments of it, shipped to a directory or an S3-compatible store, and restored from there."""
