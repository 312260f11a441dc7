"""What a simulation leaves: records, metrics and files."""
