"""Least privilege: functions check who calls them, rows of a service belong to its role, PUBLIC may do nothing.

Which role may read and write which context is granted by `koord migrate` from the services' declarations
(cli/credentials/roles.py); here is what holds for every role. A service's role is `koord_<service>`, with `-` as `_`.

Revision: 0002
Revises: 0001
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# A caller, in a SECURITY DEFINER function, is the session's user: the current one is the owner. A role that may insert
# into a context's table is its writer.
CHECK_WRITER = """
create function koord_check_writer(context text) returns void language plpgsql stable set search_path = public, pg_temp as $$
begin
    if context !~ '^[a-z][a-z0-9]*(-[0-9]+)?$' then
        raise invalid_parameter_value using message = format('%s is not a name such as quota or metrics-0', context);
    end if;
    if not coalesce(has_table_privilege(session_user, to_regclass('events_' || replace(context, '-', '_')), 'INSERT'), false) then
        raise insufficient_privilege using message = format('%s may not write the log %s', session_user, context);
    end if;
end $$
"""

WRITER = """
create or replace function koord_writer(context text) returns void language plpgsql security definer set search_path = public, pg_temp as $$
begin
    perform koord_check_writer(context);
    perform pg_advisory_lock(koord_lock_key(context));
end $$
"""

# Runs as its caller: a role may end its own sessions without any further right, and see what they do; no other role's.
END_SILENT_WRITER = """
create or replace function koord_end_silent_writer(context text, idle interval) returns integer language plpgsql security invoker
set search_path = public, pg_temp as $$
declare
    ended integer;
begin
    perform koord_check_writer(context);
    select count(pg_terminate_backend(a.pid))::integer into ended
    from pg_locks l join pg_stat_activity a on a.pid = l.pid
    where l.locktype = 'advisory' and l.granted and l.objsubid = 1
      and l.database = (select oid from pg_database where datname = current_database())
      and ((l.classid::bigint << 32) | l.objid::bigint) = koord_lock_key(koord_end_silent_writer.context)
      and a.usename = session_user
      and a.wait_event_type = 'Client'
      and a.state_change < clock_timestamp() - case a.state when 'idle' then idle when 'active' then 2 * idle end;
    return ended;
end $$
"""

# As in 0001; the check is the shared one, and `upto` is bounded: a mistaken caller would make partitions without end.
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

# Only an owner may detach, and CONCURRENTLY is no statement for a function. So this is the plain form, which waits for
# those who read the context at the moment; it gives up after 100 ms, for the writer waits behind it, and its caller
# tries again.
DROP_PARTITION = """
create function koord_drop_partition(context text, name text) returns void language plpgsql security definer
set search_path = public, pg_temp set lock_timeout = '100ms' as $$
declare
    owner_table text := 'events_' || replace(context, '-', '_');
    rows_each bigint;
    head bigint;
    pending boolean;
begin
    perform koord_check_writer(context);
    perform pg_advisory_xact_lock(koord_lock_key('partitions of ' || context));
    select i.inhdetachpending into pending from pg_inherits i
    where i.inhparent = to_regclass(owner_table) and i.inhrelid = to_regclass(quote_ident(name));
    if pending is null then
        raise undefined_table using message = format('%s is no partition of the log %s', name, context);
    end if;
    select c.partition_rows into strict rows_each from contexts c where c.context = koord_drop_partition.context;
    execute format('select coalesce(max(seq), 0) from %I', owner_table) into head;
    if name !~ ('^' || owner_table || '_p[0-9]+$') or (substring(name from '[0-9]+$')::bigint + 1) * rows_each > head then
        raise invalid_parameter_value using message = format('%s is being written', name);
    end if;
    execute format('alter table %I detach partition %I %s', owner_table, name, case when pending then 'finalize' else '' end);
    execute format('drop table %I', name);
end $$
"""

ROLE_OF = """
create function koord_role_of(service text) returns text language sql immutable parallel safe
    return 'koord_' || replace(service, '-', '_')
"""

# True for koord_operator and its members; the role need not exist.
OPERATES = """
create function koord_operates() returns boolean language sql stable
    return exists (select from pg_roles r where r.rolname = 'koord_operator' and pg_has_role(current_user, r.oid, 'MEMBER'))
"""

OWN = "koord_role_of(service) = current_user"
POLICIES = {
    "snapshots": {
        "own": f"for all using ({OWN}) with check ({OWN})",
        "operator_reads": "for select using ((select koord_operates()))",
        "operator_drops": "for delete using ((select koord_operates()))",
    },
    "parked": {
        "own": f"for all using ({OWN}) with check ({OWN})",
        "operator_reads": "for select using ((select koord_operates()))",
        "operator_drops": "for delete using ((select koord_operates()))",
    },
    "skips": {
        "own": f"for select using ({OWN})",
        "operator": "for all using ((select koord_operates())) with check ((select koord_operates()))",
    },
    "followers": {
        # A writer looks at what its followers can read; each forgets those that were not seen for a week.
        "everyone_reads": "for select using (true)",
        "own_begins": f"for insert with check ({OWN})",
        "own_goes_on": f"for update using ({OWN}) with check ({OWN})",
        "forgotten": f"for delete using ({OWN} or seen_at < clock_timestamp() - interval '7 days' or (select koord_operates()))",
    },
}

NEW = {
    "koord_check_writer(text)": CHECK_WRITER,
    "koord_drop_partition(text, text)": DROP_PARTITION,
    "koord_role_of(text)": ROLE_OF,
    "koord_operates()": OPERATES,
}
OURS = (*NEW, "koord_lock_key(text)", "koord_writer(text)", "koord_end_silent_writer(text, interval)", "koord_extend(text, bigint)",
        "koord_declare_context(text, bigint)")

# What writes without a table: large objects are open to every role.
LARGE_OBJECTS = (
    "lo_creat(integer)", "lo_create(oid)", "lo_from_bytea(oid, bytea)", "lo_open(oid, integer)", "lo_put(oid, bigint, bytea)",
    "lowrite(integer, bytea)", "lo_unlink(oid)", "lo_truncate(integer, integer)", "lo_truncate64(integer, bigint)",
)


def upgrade() -> None:
    for sql in (CHECK_WRITER, WRITER, END_SILENT_WRITER, EXTEND, DROP_PARTITION, ROLE_OF, OPERATES):
        op.execute(sql)
    for function in (*OURS, *LARGE_OBJECTS):
        op.execute(f"revoke execute on function {function} from public")
    op.execute("revoke all on schema public from public")
    for table, policies in POLICIES.items():
        op.execute(f"alter table {table} enable row level security")
        for name, policy in policies.items():
            op.execute(f"create policy {name} on {table} {policy}")


def downgrade() -> None:
    for table, policies in POLICIES.items():
        for name in policies:
            op.execute(f"drop policy {name} on {table}")
        op.execute(f"alter table {table} disable row level security")
    op.execute("grant usage on schema public to public")
    for function in (*OURS, *LARGE_OBJECTS):
        if function not in NEW and function != "koord_declare_context(text, bigint)":
            op.execute(f"grant execute on function {function} to public")
    from importlib import import_module

    first = import_module("migrations.versions.0001_log")
    for sql in (first.WRITER, first.END_SILENT_WRITER, first.EXTEND):
        op.execute(sql.replace("create function", "create or replace function"))
    for function in NEW:
        op.execute(f"drop function {function}")
