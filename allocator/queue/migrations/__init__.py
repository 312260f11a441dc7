"""Schema versions of the queue, run by engine.upgrade inside one transaction."""
