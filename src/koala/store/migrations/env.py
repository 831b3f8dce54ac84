"""What Alembic runs to run a revision: on the connection, and in the transaction, of ``koala.store.migrate``."""

from __future__ import annotations

from alembic import context

from koala.store.migrate import VERSION_TABLE
from koala.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
