"""Events of more than 2 KB are compressed with lz4, where the server has it: reports of nodes, sharings of many quotas.

Nothing is rewritten: rows that are there stay as they are, and partitions that are made later copy the setting. Of
smaller rows Postgres compresses none. A server without lz4 goes on without: its own pglz takes three times as long for
a whole append.

Revision: 0008
Revises: 0007
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# Postgres passes a compression on to no partition that is there.
EACH = """
do $$
declare
    part regclass;
begin
    if {condition} then
        for part in select relid from pg_partition_tree('events') loop
            execute format('alter table %s alter column data set storage {storage}, alter column data set compression {by}', part);
        end loop;
    end if;
end $$
"""

HAS_LZ4 = "(select 'lz4' = any(enumvals) from pg_settings where name = 'default_toast_compression')"


def upgrade() -> None:
    op.execute(EACH.format(condition=HAS_LZ4, storage="extended", by="lz4"))


def downgrade() -> None:
    op.execute(EACH.format(condition="true", storage="external", by="default"))
