"""Names of LP and MPS files, and saved programmes of other systems."""
