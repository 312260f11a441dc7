"""Schema versions of the queue; Alembic runs their migrations inside one transaction."""
