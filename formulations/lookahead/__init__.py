"""What follows after the round: when those that wait start, and when every job is done."""
