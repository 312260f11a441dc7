"""The HTTP service of a queue: an API for programs and pages for people."""
