"""The log: events by context and range of seq, snapshots, parked events, skips, followers.

Revision: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NOW = sa.text("clock_timestamp()")
AT = postgresql.TIMESTAMP(timezone=True)

# The advisory lock of a context's writer. The key is derived in one place, for taking, watching and ending alike.
LOCK_KEY = """
create function koord_lock_key(context text) returns bigint language sql immutable parallel safe
    return hashtextextended('koordstream writer ' || context, 0)
"""

# Blocks until the caller's session holds the lock; only who may insert into the context's table may ask.
WRITER = """
create function koord_writer(context text) returns void language plpgsql security definer set search_path = public, pg_temp as $$
begin
    if not has_table_privilege(session_user, 'events_' || replace(context, '-', '_'), 'INSERT') then
        raise insufficient_privilege using message = format('%s may not write the log %s', session_user, context);
    end if;
    perform pg_advisory_lock(koord_lock_key(context));
end $$
"""

# Ends a holder that has gone silent, in one statement, so that nothing can change between the check and the action.
# Only a session of this database is ended that waits for its client and has done so for `idle` (in the middle of a
# COPY: twice that): never one that works, waits for a disk, or waits for a synchronous standby. The lock is given away
# after the session's end, so the successor reads whatever it still committed: a wrong guess costs a restart, no event.
END_SILENT_WRITER = """
create function koord_end_silent_writer(context text, idle interval) returns integer language sql security definer
set search_path = public, pg_temp as $$
    select count(pg_terminate_backend(a.pid))::integer
    from pg_locks l join pg_stat_activity a on a.pid = l.pid
    where l.locktype = 'advisory' and l.granted and l.objsubid = 1
      and l.database = (select oid from pg_database where datname = current_database())
      and ((l.classid::bigint << 32) | l.objid::bigint) = koord_lock_key(context)
      and a.usename = session_user
      and a.wait_event_type = 'Client'
      and a.state_change < clock_timestamp() - case a.state when 'idle' then idle when 'active' then 2 * idle end
$$
"""

# Declares a context: its own partition of `events`, itself partitioned by range of seq.
DECLARE_CONTEXT = """
create function koord_declare_context(context text, partition_rows bigint) returns void language plpgsql security definer
set search_path = public, pg_temp as $$
declare
    owner_table text := 'events_' || replace(context, '-', '_');
begin
    if context !~ '^[a-z][a-z0-9]*(-[0-9]+)?$' then
        raise 'context % is not a name such as quota or metrics-0', context;
    end if;
    perform pg_advisory_xact_lock(koord_lock_key('partitions of ' || context));
    insert into contexts values (context, partition_rows) on conflict do nothing;
    if to_regclass(owner_table) is null then
        execute format('create table %I partition of events for values in (%L) partition by range (seq)', owner_table, context);
    end if;
    perform koord_extend(context, 0);
end $$
"""

# Makes the partitions up to the head, or up to `upto` when an append will go beyond it, and two more; returns the first
# seq that has none. A partition is made on its own with the CHECK that its place demands and then attached, which takes
# milliseconds beside readers; `create table ... partition of` waits for every one of them.
EXTEND = """
create function koord_extend(context text, upto bigint) returns bigint language plpgsql security definer
set search_path = public, pg_temp as $$
declare
    owner_table text := 'events_' || replace(context, '-', '_');
    rows_each bigint;
    head bigint;
    number bigint;
    low bigint;
    high bigint;
    name text;
begin
    if not has_table_privilege(session_user, owner_table, 'INSERT') then
        raise insufficient_privilege using message = format('%s may not write the log %s', session_user, context);
    end if;
    perform pg_advisory_xact_lock(koord_lock_key('partitions of ' || context));
    select c.partition_rows into strict rows_each from contexts c where c.context = koord_extend.context;
    execute format('select coalesce(max(seq), 0) from %I', owner_table) into head;
    for number in head / rows_each .. greatest(head, upto) / rows_each + 2 loop
        low := number * rows_each;
        high := low + rows_each;
        name := owner_table || '_p' || number;
        if to_regclass(name) is null then
            execute format('create table %I (like %I including all, check (context = %L and seq >= %s and seq < %s))',
                           name, owner_table, context, low, high);
            execute format('alter table %I set (autovacuum_vacuum_insert_scale_factor = 0.5)', name);
            execute format('alter table %I attach partition %I for values from (%s) to (%s)', owner_table, name, low, high);
        end if;
    end loop;
    return high;
end $$
"""

FUNCTIONS = {
    "koord_lock_key(text)": LOCK_KEY,
    "koord_writer(text)": WRITER,
    "koord_end_silent_writer(text, interval)": END_SILENT_WRITER,
    "koord_extend(text, bigint)": EXTEND,
    "koord_declare_context(text, bigint)": DECLARE_CONTEXT,
}

# Locks are taken through koord_writer alone: a role that could take any advisory lock could stop any writer.
ADVISORY = (
    "pg_advisory_lock(bigint)", "pg_advisory_lock(int, int)", "pg_advisory_lock_shared(bigint)", "pg_advisory_lock_shared(int, int)",
    "pg_try_advisory_lock(bigint)", "pg_try_advisory_lock(int, int)", "pg_try_advisory_lock_shared(bigint)",
    "pg_try_advisory_lock_shared(int, int)", "pg_advisory_xact_lock(bigint)", "pg_advisory_xact_lock(int, int)",
    "pg_advisory_xact_lock_shared(bigint)", "pg_advisory_xact_lock_shared(int, int)", "pg_try_advisory_xact_lock(bigint)",
    "pg_try_advisory_xact_lock(int, int)", "pg_try_advisory_xact_lock_shared(bigint)", "pg_try_advisory_xact_lock_shared(int, int)",
)


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("context", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("schema", sa.SmallInteger, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("at", AT, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("cause", sa.Text),
        sa.Column("correlation", sa.Text),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("context", "seq"),
        postgresql_partition_by="LIST (context)",
    )
    op.create_index("events_key_seq", "events", ["key", "seq"])
    # JSON of a few hundred bytes is stored as it is: compressing it costs the writer more than the disk gains.
    op.execute("alter table events alter column data set storage external")
    op.create_table(
        "contexts",
        sa.Column("context", sa.Text, primary_key=True),
        sa.Column("partition_rows", sa.BigInteger, nullable=False, comment="how many seqs one partition holds"),
    )
    op.create_table(
        "snapshots",
        sa.Column("service", sa.Text, primary_key=True),
        sa.Column("at", AT, primary_key=True, server_default=NOW),
        sa.Column("positions", postgresql.JSONB, nullable=False, comment="context -> [seq, digest in hexadecimal]"),
        sa.Column("schema", sa.SmallInteger, nullable=False),
        sa.Column("code", sa.Text, nullable=False, comment="the release that wrote it"),
        sa.Column("data", sa.LargeBinary, nullable=False, comment="State.encode(), zstd"),
        sa.Column("digest", sa.LargeBinary, nullable=False, comment="SHA-256 of State.encode()"),
    )
    for table, extra in (("parked", [sa.Column("error", sa.Text, nullable=False)]),
                         ("skips", [sa.Column("reason", sa.Text, nullable=False), sa.Column("by", sa.Text, nullable=False)])):
        op.create_table(
            table,
            sa.Column("service", sa.Text, primary_key=True),
            sa.Column("context", sa.Text, primary_key=True),
            sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
            *extra,
            sa.Column("at", AT, nullable=False, server_default=NOW),
        )
    op.create_table(
        "followers",
        sa.Column("service", sa.Text, primary_key=True),
        sa.Column("positions", postgresql.JSONB, nullable=False, comment="context -> seq"),
        sa.Column("reads", postgresql.JSONB, nullable=False, comment="context -> event types, with versions, that it can fold"),
        sa.Column("seen_at", AT, nullable=False, server_default=NOW),
    )
    for sql in FUNCTIONS.values():
        op.execute(sql)
    for function in (*ADVISORY, "koord_declare_context(text, bigint)"):
        op.execute(f"revoke execute on function {function} from public")


def downgrade() -> None:
    for function in ADVISORY:
        op.execute(f"grant execute on function {function} to public")
    for function in reversed(FUNCTIONS):
        op.execute(f"drop function {function}")
    for table in ("followers", "skips", "parked", "snapshots", "contexts", "events"):
        op.drop_table(table)
