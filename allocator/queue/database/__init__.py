"""The database of a queue: engine, schema, bulk statements, identity."""
