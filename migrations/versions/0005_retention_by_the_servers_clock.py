"""Age is measured here, by the server's clock and the log's own times: one partition at a time, never the newest days.

A service whose clock is wrong by a month could otherwise drop a log: it chose the partitions itself.

Revision: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# `contexts.kept_at_least`: no setting, no size and no caller makes a younger partition go.
DECLARE_CONTEXT = """
create or replace function koord_declare_context(context text, partition_rows bigint) returns void language plpgsql security definer
set search_path = public, pg_temp as $$
declare
    owner_table text := 'events_' || replace(context, '-', '_');
begin
    if context !~ '^[a-z][a-z0-9]*(-[0-9]+)?$' then
        raise 'context % is not a name such as quota or metrics-0', context;
    end if;
    perform pg_advisory_xact_lock(koord_lock_key('partitions of ' || context));
    insert into contexts values (context, partition_rows, case when context ~ '^metrics-' then interval '1 hour' else interval '2 days' end)
    on conflict do nothing;
    if to_regclass(owner_table) is null then
        execute format('create table %I partition of events for values in (%L) partition by range (seq)', owner_table, context);
    end if;
    perform koord_extend(context, 0);
end $$
"""

# As in 0002, and notes when a partition was found full: by this clock, whatever the writer's clock says of its events.
EXTEND = """
create or replace function koord_extend(context text, upto bigint) returns bigint language plpgsql security definer
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
    perform koord_check_writer(context);
    perform pg_advisory_xact_lock(koord_lock_key('partitions of ' || context));
    select c.partition_rows into strict rows_each from contexts c where c.context = koord_extend.context;
    execute format('select coalesce(max(seq), 0) from %I', owner_table) into head;
    if upto > head + greatest(64 * rows_each, 1000000) then
        raise invalid_parameter_value using message = format('%s is too far from the head %s of %s', upto, head, context);
    end if;
    insert into full_partitions (context, name)
    select koord_extend.context, c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = to_regclass(owner_table) and (substring(c.relname from '[0-9]+$')::bigint + 1) * rows_each <= head
    on conflict do nothing;
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

# A partition's age is the least of three: since this server found it full, from its last event to now, and from its last
# event to the head. Each alone can be wrong: a clock that is set forward, a writer whose clock was behind, a restored
# server. Only the oldest partition is ever a candidate, so no fold meets a hole.
EXPIRED_PARTITION = """
create function koord_expired_partition(context text, keep interval, most_bytes bigint)
returns table (name text, low bigint, high bigint) language plpgsql stable security definer set search_path = public, pg_temp as $$
declare
    owner_table text := 'events_' || replace(context, '-', '_');
    declared contexts;
    oldest text;
    number bigint;
    head bigint;
    head_at timestamptz;
    last_at timestamptz;
    full_at timestamptz;
    age interval;
    total bigint;
begin
    perform koord_check_writer(context);
    select c.* into strict declared from contexts c where c.context = koord_expired_partition.context;
    execute format('select seq, at from %I order by seq desc limit 1', owner_table) into head, head_at;
    select c.relname, substring(c.relname from '[0-9]+$')::bigint as place into oldest, number
    from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = to_regclass(owner_table) order by place limit 1;
    if head is null or oldest is null or (number + 1) * declared.partition_rows > head then
        return;
    end if;
    select f.at into full_at from full_partitions f where f.context = koord_expired_partition.context and f.name = oldest;
    execute format('select at from %I order by seq desc limit 1', oldest) into last_at;
    age := least(clock_timestamp() - last_at, head_at - last_at, clock_timestamp() - coalesce(full_at, clock_timestamp()));
    if last_at is null or age <= declared.kept_at_least then
        return;
    end if;
    if age <= keep then
        if most_bytes is null then
            return;
        end if;
        select sum(pg_total_relation_size(i.inhrelid)) into total from pg_inherits i where i.inhparent = to_regclass(owner_table);
        if total <= most_bytes then
            return;
        end if;
    end if;
    return query select oldest, number * declared.partition_rows, (number + 1) * declared.partition_rows;
end $$
"""

# As in 0002, for the oldest partition alone, and for none that is younger than the context keeps in any case.
DROP_PARTITION = """
create or replace function koord_drop_partition(context text, name text) returns void language plpgsql security definer
set search_path = public, pg_temp set lock_timeout = '100ms' as $$
declare
    owner_table text := 'events_' || replace(context, '-', '_');
    pending boolean;
begin
    perform koord_check_writer(context);
    perform pg_advisory_xact_lock(koord_lock_key('partitions of ' || context));
    select i.inhdetachpending into pending from pg_inherits i
    where i.inhparent = to_regclass(owner_table) and i.inhrelid = to_regclass(quote_ident(name));
    if pending is null then
        raise undefined_table using message = format('%s is no partition of the log %s', name, context);
    end if;
    if not exists (select from koord_expired_partition(context, interval '0', null) e where e.name = koord_drop_partition.name) then
        raise invalid_parameter_value using message = format('%s is not the oldest partition of %s, or is too young to be dropped', name, context);
    end if;
    execute format('alter table %I detach partition %I %s', owner_table, name, case when pending then 'finalize' else '' end);
    execute format('drop table %I', name);
    delete from full_partitions f where f.context = koord_drop_partition.context and f.name = koord_drop_partition.name;
end $$
"""


def upgrade() -> None:
    op.add_column(
        "contexts",
        sa.Column(
            "kept_at_least",
            sa.Interval(),
            nullable=False,
            server_default=sa.text("interval '2 days'"),
            comment="no younger partition is ever dropped",
        ),
    )
    op.execute("update contexts set kept_at_least = interval '1 hour' where context ~ '^metrics-'")
    op.create_table(
        "full_partitions",
        sa.Column("context", sa.Text(), primary_key=True),
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column(
            "at",
            sa.TIMESTAMP(timezone=True),
            nullable=False,
            server_default=sa.text("clock_timestamp()"),
            comment="when the server found it full",
        ),
    )
    for sql in (DECLARE_CONTEXT, EXTEND, EXPIRED_PARTITION, DROP_PARTITION):
        op.execute(sql)
    op.execute("revoke execute on function koord_expired_partition(text, interval, bigint) from public")


def downgrade() -> None:
    from importlib import import_module

    first = import_module("migrations.versions.0001_log")
    second = import_module("migrations.versions.0002_least_privilege")
    for sql in (first.DECLARE_CONTEXT, second.EXTEND, second.DROP_PARTITION):
        op.execute(sql.replace("create function", "create or replace function"))
    op.execute("drop function koord_expired_partition(text, interval, bigint)")
    op.drop_table("full_partitions")
    op.drop_column("contexts", "kept_at_least")
