"""What users see of decisions: conditions, Events, PodGroup status, and verdicts on pending groups."""
