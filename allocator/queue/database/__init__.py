"""The database of a queue: connections, schema, bulk statements and the id of the queue."""
