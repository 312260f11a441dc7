"""Two jobs on the same GPUs: when it pays, and at which prices."""
