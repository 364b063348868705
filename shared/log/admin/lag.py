"""Lag of followers and of node agents, read from the log: for people, with a login that only reads."""

from datetime import datetime
from typing import NamedTuple

from shared.events.cluster import NodeDeleted, NodeObserved
from shared.events.log import CarriedForward
from shared.events.metrics import NodeReported
from shared.log.admin.followers import list_followers
from shared.log.database import Database
from shared.log.reader import LogReader
from shared.log.table_names import table_of


class Behind(NamedTuple):
    """Lag of a follower in a context when it last registered, which it does every 10 s.

    Attributes:
        events: events of the context that it had not folded then or that came since.
        oldest_s: age of the first of them; 0 when there is none.
        unseen_s: seconds since it registered.
    """

    service: str
    context: str
    events: int
    oldest_s: float
    unseen_s: float


class NodeReport(NamedTuple):
    """The newest report of a node's agent in the log.

    Attributes:
        age_s: seconds since it was appended; None when no report is kept.
        interval_s: the interval at which the agent reports.
        ahead_s: how far its clock was ahead of the writer's then; reports travel, so it is a little negative.
    """

    node: str
    age_s: float | None
    interval_s: int
    ahead_s: float


async def behind(database: Database) -> list[Behind]:
    """Returns the lag of every follower in every context that it follows, by name."""
    reader = LogReader(database)
    followers = await list_followers(database)
    heads = {context: (await reader.head(context)).seq for context in await reader.contexts()}
    async with database.reading() as connection:
        now: datetime = await connection.fetchval("select clock_timestamp()")
        found = []
        for one in followers:
            for context, seq in sorted(one.positions.items()):
                events = max(heads.get(context, 0) - seq, 0)
                first = None
                if events:
                    sql = f'select at from "{table_of(context)}" where context = $1 and seq > $2 order by seq limit 1'  # noqa: S608
                    first = await connection.fetchval(sql, context, seq)
                oldest_s = (now - first).total_seconds() if first else 0.0
                unseen_s = (now - one.seen_at).total_seconds()
                found.append(Behind(one.service, context, events, oldest_s, unseen_s))
    return found


async def node_reports(database: Database) -> list[NodeReport]:
    """Returns the newest report of every node in the cluster, by name."""
    reader = LogReader(database)
    metrics = [context for context in await reader.contexts() if context.startswith("metrics-")]
    last = " union all ".join(
        f"(select at, data from {table_of(context)} where context = '{context}' and key = nodes.key and type = $1 "  # noqa: S608
        "order by seq desc limit 1)"
        for context in metrics
    )
    if not last:
        return []
    sql = f"""
        with recorded as (
            select key, type, seq from events_cluster
            where type in ('{NodeObserved.type_name()}', '{NodeDeleted.type_name()}')
            union all
            select key, '{NodeObserved.type_name()}', seq from events_cluster where type = '{CarriedForward.type_name()}'
            and convert_from(data, 'UTF8') like '%"type":"{NodeObserved.type_name()}"%'),
        latest as (select distinct on (key) key, type from recorded order by key, seq desc),
        nodes as (select key from latest where type <> $2)
        select nodes.key as node, extract(epoch from clock_timestamp() - report.at)::float8 as age_s,
               (convert_from(report.data, 'UTF8')::jsonb ->> 'interval_s')::integer as interval_s,
               ((convert_from(report.data, 'UTF8')::jsonb ->> 'at_ns')::numeric / 1e9 - extract(epoch from report.at))::float8
                   as ahead_s
        from nodes left join lateral (select * from ({last}) found order by at desc limit 1) report on true
        order by nodes.key"""  # noqa: S608
    async with database.reading() as connection:
        rows = await connection.fetch(sql, NodeReported.type_name(), NodeDeleted.type_name())
    return [NodeReport(node, age_s, interval_s or 0, ahead_s or 0.0) for node, age_s, interval_s, ahead_s in rows]
