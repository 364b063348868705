"""Disk space is reserved, and given back when the disk is nearly full: steps that free space then need none.

Before a partition is dropped, what still holds in it is appended again, and that takes space first.

Revision: 0006
Revises: 0005
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# 64 MiB in rows of a page each. The table is unlogged, so that filling it writes no WAL; after a crash it is empty, and
# is filled again. Plain storage: there is no TOAST table, whose index would need a page when the table is emptied.
RESERVE = """
create function koord_reserve_space(context text) returns void language plpgsql security definer
set search_path = public, pg_temp as $$
begin
    perform koord_check_writer(context);
    perform pg_advisory_xact_lock(koord_lock_key('reserved space'));
    if not exists (select from reserved_space) then
        insert into reserved_space select convert_to(repeat('-', 8100), 'UTF8') from generate_series(1, 8192);
    end if;
end $$
"""

# To truncate removes the file when the transaction ends; deleted rows would take space until a vacuum.
RELEASE = """
create function koord_release_space(context text) returns void language plpgsql security definer
set search_path = public, pg_temp set lock_timeout = '1s' as $$
begin
    perform koord_check_writer(context);
    if exists (select from reserved_space) then
        truncate reserved_space;
    end if;
end $$
"""


def upgrade() -> None:
    op.execute("create unlogged table reserved_space (filler bytea storage plain not null) with (autovacuum_enabled = false)")
    for sql in (RESERVE, RELEASE):
        op.execute(sql)
    for name in ("koord_reserve_space(text)", "koord_release_space(text)"):
        op.execute(f"revoke execute on function {name} from public")


def downgrade() -> None:
    op.execute("drop function koord_reserve_space(text)")
    op.execute("drop function koord_release_space(text)")
    op.drop_table("reserved_space")
