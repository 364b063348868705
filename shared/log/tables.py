"""The tables of the log as Alembic compares them with the migrations. Partitions of `events` come and go by function.

A process that reads or writes the log does not import this: SQLAlchemy takes half a second.
"""

from sqlalchemy import BigInteger, Column, Index, Interval, LargeBinary, MetaData, SmallInteger, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP

metadata = MetaData()

_AT = TIMESTAMP(timezone=True)

RARE = (
    "type in ('koord.log.ConfigApplied.v1', 'koord.log.ConfigRejected.v1', 'koord.log.CarriedForward.v1', "
    "'koord.log.WriterStarted.v1', 'koord.cluster.MissingPermission.v1', 'koord.cluster.NodeObserved.v1', 'koord.cluster.NodeDeleted.v1', "
    "'koord.slo.NodeReportsIgnored.v1', 'koord.slo.NodeReportsBelieved.v1')"
)
"""The types that people search without a key; they have an index of their own."""

events = Table(
    "events",
    metadata,
    Column("context", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("type", Text, nullable=False),
    Column("schema", SmallInteger, nullable=False),
    Column("key", Text, nullable=False),
    Column("at", _AT, nullable=False),
    Column("actor", Text, nullable=False),
    Column("cause", Text),
    Column("correlation", Text),
    Column("data", LargeBinary, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Index("events_key_seq", "key", "seq"),
    Index("events_rare_type_seq", "type", "seq", postgresql_where=text(RARE)),
    postgresql_partition_by="LIST (context)",
)

contexts = Table(
    "contexts",
    metadata,
    Column("context", Text, primary_key=True),
    Column("partition_rows", BigInteger, nullable=False, comment="how many seqs one partition holds"),
    Column(
        "kept_at_least",
        Interval,
        nullable=False,
        server_default=text("interval '2 days'"),
        comment="no younger partition is ever dropped",
    ),
)

full_partitions = Table(
    "full_partitions",
    metadata,
    Column("context", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column(
        "at", _AT, nullable=False, server_default=text("clock_timestamp()"), comment="when the server found it full"
    ),
)

reserved_space = Table("reserved_space", metadata, Column("filler", LargeBinary, nullable=False), prefixes=["unlogged"])
"""Space that is given back when the disk is nearly full."""

snapshots = Table(
    "snapshots",
    metadata,
    Column("service", Text, primary_key=True),
    Column("at", _AT, primary_key=True, server_default=text("clock_timestamp()")),
    Column("positions", JSONB, nullable=False, comment="context -> [seq, digest in hexadecimal]"),
    Column("schema", SmallInteger, nullable=False),
    Column("code", Text, nullable=False, comment="the release that wrote it"),
    Column("data", LargeBinary, nullable=False, comment="State.encode(), zstd"),
    Column("digest", LargeBinary, nullable=False, comment="SHA-256 of State.encode()"),
)

parked = Table(
    "parked",
    metadata,
    Column("service", Text, primary_key=True),
    Column("context", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("error", Text, nullable=False),
    Column("at", _AT, nullable=False, server_default=text("clock_timestamp()")),
)

skips = Table(
    "skips",
    metadata,
    Column("service", Text, primary_key=True),
    Column("context", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("by", Text, nullable=False),
    Column("at", _AT, nullable=False, server_default=text("clock_timestamp()")),
)

followers = Table(
    "followers",
    metadata,
    Column("service", Text, primary_key=True),
    Column("positions", JSONB, nullable=False, comment="context -> seq"),
    Column("reads", JSONB, nullable=False, comment="context -> event types, with versions, that it can fold"),
    Column("seen_at", _AT, nullable=False, server_default=text("clock_timestamp()")),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False, comment="of its event in the context audit"),
    Column("at", _AT, nullable=False),
    Column("heads", JSONB, nullable=False, comment="context -> [seq, digest in hexadecimal]"),
    Column("statement", Text, nullable=False, comment="the text that is signed"),
    Column("public_key", Text, nullable=False, comment="Ed25519, base64"),
    Column("signature", Text, nullable=False, comment="base64"),
)


def partition_of_events(name: str) -> bool:
    """Reports whether a table is a partition of `events`: those are created and dropped by function, never by a
    migration.
    """
    return name.startswith("events_")
