"""What a shadow decided beside what the scheduler that was there did."""
