"""Checks of the log's database: connection, schema of this release, and durable settings."""

from collections.abc import Iterator, Mapping

from cli.doctor.finding import Finding
from shared.log.admin.server_check import Schema, Server, refused_settings
from shared.log.database import without_password

OLDEST = 14
"""The first that ends a client's statement when the client is gone (client_connection_check_interval)."""
TESTED = 18

CLOCK_WARNING_S, CLOCK_ERROR_S = 1.0, 30.0
FULL = 0.9

_NOT_OFF: Mapping[str, tuple[str, str]] = {
    "fsync": ("a power cut can damage the whole database", "set fsync = on"),
    "full_page_writes": ("a power cut can damage pages that were being written", "set full_page_writes = on"),
    "synchronous_commit": (
        "a power cut can take events that were already announced and acted upon",
        "set synchronous_commit = on for this database",
    ),
}
_NO_TIMEOUT: Mapping[str, str] = {
    "statement_timeout": "it would cancel a standby that waits for the writer's lock, and long reads",
    "lock_timeout": "it would cancel a standby that waits for the writer's lock",
}


def about_server(server: Server, url: str) -> Iterator[Finding]:
    """Version, role, settings and room."""
    major, minor = divmod(server.version, 10_000)
    where = without_password(url)
    yield Finding(
        "ok", "postgres", f"PostgreSQL {major}.{minor} at {where} answers in {server.round_trip_s * 1000:.1f} ms"
    )
    if major < OLDEST:
        yield Finding(
            "error",
            "postgres",
            f"PostgreSQL {major} does not notice that a client is gone, so a lost writer would keep its lock",
            f"use PostgreSQL {OLDEST} or later; {TESTED} is what this release is tested with",
        )
    if server.standby or server.settings.get("transaction_read_only") == "on":
        yield Finding(
            "error",
            "postgres",
            f"{where} takes no writes: it is a standby or read-only",
            "name the primary in KOORD_POSTGRES, or end its read-only mode",
        )
    for name, (danger, remedy) in _NOT_OFF.items():
        if server.settings.get(name) == "off":
            yield Finding("error", "postgres", f"{name} is off: {danger}", remedy)
    for name, danger in _NO_TIMEOUT.items():
        if server.settings.get(name, "0") != "0":
            found = f"{name} is {server.settings[name]} ms here: {danger}"
            yield Finding("warning", "postgres", found, f"set {name} = 0 for this database and its roles")
    if refused := refused_settings(server):
        yield Finding(
            "warning",
            "postgres",
            f"{', '.join(refused)} of our sessions are not in force: a writer whose machine is lost keeps its lock for minutes",
            "connect to the server itself over TCP, without a pooler in between",
        )
    used, most = server.connections
    if used > FULL * most:
        found = f"{used} of {most} connections are in use"
        yield Finding(
            "warning", "postgres", found, "raise max_connections: a service that finds none left cannot start"
        )


def about_schema(found: Schema) -> Finding:
    """Checks that the database is migrated to this release."""
    if not found.found:
        return Finding("error", "postgres", "the database has no tables of ours", "run `koord migrate`")
    if found.found == found.required:
        return Finding("ok", "postgres", f"the schema is {found.found}, which is this release's")
    if not found.known:
        what = f"the schema is {found.found}, which this release does not know: a later one has migrated the database"
        return Finding("error", "postgres", what, "use that release's `koord` and services")
    what = f"the schema is {found.found} and this release needs {found.required}"
    return Finding("error", "postgres", what, "run `koord migrate`, before the services of this release start")


def about_contexts(declared: Mapping[str, int], found: Mapping[str, int]) -> Iterator[Finding]:
    """Checks that the database has a log for each context."""
    if missing := [context for context in declared if context not in found]:
        what = f"the database has no log for {', '.join(sorted(missing))}"
        yield Finding("error", "postgres", what, "run `koord migrate` with the KOORD_METRICS_SHARDS of the services")


def about_clock(server: Server) -> Finding:
    """Compares the clocks of this machine and the database, to half of the round trip."""
    off_s = max(abs(server.ahead_s) - server.round_trip_s / 2, 0.0)
    what = f"the clock of Postgres is {abs(server.ahead_s):.3f} s {'ahead of' if server.ahead_s > 0 else 'behind'} this machine's"
    return clock_finding(off_s, what)


def clock_finding(off_s: float, what: str) -> Finding:
    """Rates a difference of clocks: decisions compare instants of several machines."""
    if off_s < CLOCK_WARNING_S:
        return Finding("ok", "clock", what)
    remedy = "synchronise the clocks (chrony, systemd-timesyncd): reports count as stale or as of the future, and `at` misleads"
    return Finding("error" if off_s >= CLOCK_ERROR_S else "warning", "clock", what, remedy)
