"""How Alembic reaches the database: by the connection of the caller.

`apps.weamind.core.database.migrate` passes it, inside a transaction that excludes other processes.
"""

from alembic import context

from apps.weamind.user.schema import metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("call apps.weamind.core.database.migrate(engine): it has the connection")
context.configure(
    connection=connection,
    target_metadata=metadata,
    version_table="weamind_schema",
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
