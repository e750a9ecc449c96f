"""What one session works on: the snapshot in columns, views of it, and statements, which change it in trial."""
