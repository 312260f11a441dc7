"""Jobs of a queue: submission, states, and the verbs of their owners."""
