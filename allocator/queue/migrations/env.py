"""Entry point of Alembic.

It runs the migrations on the connection, and inside the transaction, that it is given.
"""

from __future__ import annotations

from alembic import context

from allocator.queue.database.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
