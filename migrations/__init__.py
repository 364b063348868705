"""Alembic migrations of the log's database."""
