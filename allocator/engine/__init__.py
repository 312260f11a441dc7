"""One decision: compile, decide, audit, explain."""
