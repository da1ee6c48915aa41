"""The history of the database's schema, run by Alembic when the bot starts."""
