"""The rules that every input must keep, and the faults that name what breaks them."""
