"""Postgres and NATS from wheels, for `koord up`, `koord demo` and the tests: real servers, no installation."""

from cli.embedded.nats import EmbeddedNats
from cli.embedded.postgres import EmbeddedPostgres

__all__ = ["EmbeddedNats", "EmbeddedPostgres"]
