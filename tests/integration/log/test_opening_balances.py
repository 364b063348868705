"""The ledger's oldest partitions are dropped, and its log begins with opening balances."""

import time
from typing import Any

from cli.quota.rebuild_state import fold_log
from services.quota_ledger.accounting.verify_invariants_by_replay import verify
from services.quota_ledger.service import SERVICE as LEDGER
from shared.events.log import CarriedForward
from shared.events.quota import (
    CapacitySet,
    PodAdmissionDecided,
    PodAttached,
    PodCharged,
    PodReleased,
    QuotaDeclared,
)
from shared.kube.elastic_quota import DeclaredQuota
from shared.log.database import Database
from tests.support.retention import DAY_NS, Retaining, grow_old, narrow, partitions

ROWS = 50


async def test_the_balances_outlast_every_partition_that_is_dropped(database: str) -> None:
    log = Database(database)
    await narrow(log, "quota", ROWS)
    ledger = await Retaining(database, LEDGER).start(time.time_ns() - 90 * DAY_NS)
    begin = time.time_ns() - 80 * DAY_NS
    filler = PodAdmissionDecided(pod_uid="x", pod="ns/x", epoch=1, cycle=1, ok=False)
    quota = DeclaredQuota(name="a", min={"cpu": 1_000}, max={"cpu": 8_000})
    entry: dict[str, Any] = {"quota": "a", "request": {"cpu": 2_000}}
    await ledger.append(
        CapacitySet(tree="", total={"cpu": 10_000}),
        QuotaDeclared(quota="a", declared=quota),
        *(PodAttached(pod_uid=uid, pod=f"ns/{uid}", **entry) for uid in ("stays", "goes")),
        *(PodCharged(pod_uid=uid, pod=f"ns/{uid}", **entry) for uid in ("stays", "goes")),
        now_ns=begin,
    )
    await ledger.append(*[filler] * 60, now_ns=begin)
    await ledger.append(PodReleased(pod_uid="goes", pod="ns/goes", quota="a", reason="deleted"), now_ns=begin)
    await ledger.append(*[filler] * 60, now_ns=begin + DAY_NS)
    await ledger.append(filler, now_ns=time.time_ns())
    await grow_old(log, "quota")

    assert await ledger.retain() == 2
    assert "events_quota_p0" not in await partitions(log, "quota")
    assert (await ledger.folded_anew()).encode() == ledger.state.encode()
    assert ledger.state.projection.trees[""].quotas["a"].used == {"cpu": 2_000}
    assert len(await ledger.rows(CarriedForward)) == 3, "the opening balances of each cut, and the writer"

    read = await fold_log(ledger.log)
    assert read.state.projection.balances.by_account == ledger.state.projection.balances.by_account
    assert verify(read.own).findings == []
    await ledger.close()
    await log.close()
