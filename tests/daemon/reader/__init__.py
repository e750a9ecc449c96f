"""Reading the log of a running cluster into a file."""
