"""Completion of object names in a shell: the first few keys that begin with the typed text."""

from collections.abc import Sequence

from shared.log.database import Database
from shared.log.reader import LogReader
from shared.log.table_names import table_of

# A loose scan of the index (key, seq): each step jumps to the next key, however many events a key has.
_KEYS_SQL = """
with recursive found(key, number) as (
    (select key, 1 from {table} where key >= $1 order by key limit 1)
    union all
    select (select e.key from {table} e where e.key > found.key order by e.key limit 1), number + 1
    from found where found.key is not null and number < $2
)
select key from found where starts_with(key, $1)
"""
_OF_TYPE = " and exists (select from {table} e where e.key = found.key and e.type = any($3))"


async def keys_like(database: Database, context: str, prefix: str, most: int, kinds: Sequence[str] = ()) -> list[str]:
    """Returns keys of a context that begin with `prefix`, among the `most` that follow it in the index's order.

    Args:
        kinds: only keys that have an event of one of these types.
    """
    sql = (_KEYS_SQL + (_OF_TYPE if kinds else "")).format(table=table_of(context))
    values = (prefix, most, list(kinds)) if kinds else (prefix, most)
    async with database.reading() as connection:
        return [key for (key,) in await connection.fetch(sql, *values)]


async def device_keys(log: LogReader, prefix: str, most: int) -> list[str]:
    """Returns the keys that begin with `prefix` in all contexts of device discovery, at most `most` of each."""
    contexts = [name for name in await log.contexts() if name.startswith("devices-")]
    return [key for name in contexts for key in await keys_like(log.database, name, prefix, most)]
