"""A job that is not there yet, read from the file with which its user would submit it."""
