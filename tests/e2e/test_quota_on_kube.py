"""Elastic quota on a real API server: teams that lend, borrow and return capacity, while a max is lowered, nodes are
lost and a quota is deleted.

Three levels: five orgs (min 4,000 milli-cores, max 24,000), each of two departments (min 800 for each leaf, max 12,000)
of three and two leaves (min 800, max 6,000); forty quotas, all of which lend and have their max as weight.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from cli.commands.cluster import request_lists
from cli.dev.fake_nodes import create_nodes, delete_nodes, node_object
from cli.dev.local_control_plane import Cluster
from cli.quota.rebuild_state import fold_log
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.supervisor import Supervisor
from shared.errors import KoordError
from shared.kube.short_lists import CONFIRM, SHORT_LISTS, Confirmation
from tests.cluster.fixtures import StartCluster
from tests.e2e.quota_log_audit import audit
from tests.e2e.teams import QuotaStatus, Teams, quota
from tests.support.kube_system import WITHOUT_EVICTION_BUDGETS, System, beside, running
from tests.support.waiting import in_thread, until

Step = Callable[[Teams], Awaitable[None]]

ORGS = range(5)
LEAVES = {"d0": ("l0", "l1", "l2"), "d1": ("l3", "l4")}
NODES = [f"quota-{number}" for number in range(4)]
REQUESTING = [f"o{org}-{leaf}" for org in ORGS for leaf in ("l0", "l1")]
"""The leaves that ever have pods."""

RUNTIMES = """
step                         | o0-l0 o0-l1 | o1-l0 o1-l1 | o2-l0 o2-l1 | o3-l0 o3-l1 | o4-l0 o4-l1 | shared
one team alone borrows       |  6000     0 |     0     0 |     0     0 |     0     0 |     0     0 |  40000
all five want 12,000         |  4000  4000 |  4000  4000 |  4000  4000 |  4000  4000 |  4000  4000 |  40000
the max of o1-l0 is 2,000    |  4000  4000 |  2000  6000 |  4000  4000 |  4000  4000 |  4000  4000 |  40000
a node is lost               |  3000  3000 |  1900  4100 |  3000  3000 |  3000  3000 |  3000  3000 |  30000
two more are lost            |  1000  1000 |   833  1167 |  1000  1000 |  1000  1000 |  1000  1000 |  10000
two nodes return             |  3000  3000 |  1900  4100 |  3000  3000 |  3000  3000 |  3000  3000 |  30000
o2-l1 wants 2,000            |  3000  3000 |  1900  4100 |  4000  2000 |  3000  3000 |  3000  3000 |  30000
the quota o2-l1 is deleted   |  2800  2800 |  1800  3800 |  5600     - |  2800  2800 |  2800  2800 |  28000
it is made again             |  3000  3000 |  1900  4100 |  4000  2000 |  3000  3000 |  3000  3000 |  30000
the last node returns        |  4000  4000 |  2000  6000 |  6000  2000 |  4000  4000 |  4000  4000 |  40000
o2-l1 wants 6,000 again      |  4000  4000 |  2000  6000 |  4000  4000 |  4000  4000 |  4000  4000 |  40000
the max of o1-l0 is 6,000    |  4000  4000 |  4000  4000 |  4000  4000 |  4000  4000 |  4000  4000 |  40000
"""
"""What each leaf may use after each step, computed by hand; the others request nothing and lend all they have.

All five: 20,000 of 40,000 are the orgs' min, the rest is shared equally, 4,000 each; in a department 1,600 are
guaranteed and 6,400 are shared. A lowered max is a lower weight: of 6,400, o1-l0 may have a quarter and needs only
1,200. Without three nodes
the minima exceed the capacity and are scaled in proportion: an org to 2,000, of the 2,400 and 1,600 of its departments
1,200 and 800, a leaf to 2,000 * 800 / 2,400 = 666. The pods of a deleted quota count in the default group: their use is
subtracted before sharing.
"""


class Row(NamedTuple):
    """A step, and what each leaf may use after it, in milli-cores; a quota that does not exist has no number.

    Attributes:
        shared: the sum of all.
    """

    step: str
    runtimes: dict[str, int]
    shared: int


def table() -> list[Row]:
    head, *lines = (line.split("|") for line in RUNTIMES.strip().splitlines())
    leaves = " ".join(head[1:-1]).split()
    rows = []
    for step, *cells, shared in lines:
        numbers = zip(leaves, " ".join(cells).split(), strict=True)
        known = {leaf: int(number) for leaf, number in numbers if number != "-"}
        rows.append(Row(step.strip(), known, int(shared)))
    return rows


def expected(row: Row, teams: Teams) -> dict[str, QuotaStatus]:
    """Returns the expected statuses: a leaf uses as many whole pods as its runtime allows, and above it everything is a
    sum."""
    idle = [name for name in (body["metadata"]["name"] for body in forty()) if name not in REQUESTING]
    found = dict.fromkeys([*row.runtimes, *idle], QuotaStatus(0, 0))
    for leaf, runtime in row.runtimes.items():
        used = min(teams.requests[leaf], runtime // teams.pod_milli * teams.pod_milli)
        org, _, own = leaf.partition("-")
        department = next(name for name, leaves in LEAVES.items() if own in leaves)
        for name in (leaf, f"{org}-{department}", org):
            found[name] = QuotaStatus(found[name].runtime + runtime, found[name].used + used)
    return found


def leaf(name: str, parent: str) -> dict[str, Any]:
    return quota(name, parent, 800, 6000, is_parent=False)


def forty() -> list[dict[str, Any]]:
    found = []
    for org in ORGS:
        found.append(quota(f"o{org}", "", 4000, 24_000, is_parent=True))
        for department, leaves in LEAVES.items():
            name = f"o{org}-{department}"
            found.append(quota(name, f"o{org}", 800 * len(leaves), 12_000, is_parent=True))
            found += [leaf(f"o{org}-{own}", name) for own in leaves]
    return found


def want(milli: int, *leaves: str) -> Step:
    async def set_requests(teams: Teams) -> None:
        teams.requests |= dict.fromkeys(leaves, milli)

    return set_requests


def limit(name: str, most: str) -> Step:
    async def amend(teams: Teams) -> None:
        await teams.call("PATCH", teams.quotas(name), {"spec": {"max": {"cpu": most}}})

    return amend


def lose(*nodes: str) -> Step:
    async def delete(teams: Teams) -> None:
        await asyncio.to_thread(delete_nodes, teams.cluster.api, nodes)

    return delete


def add(*nodes: str) -> Step:
    async def create(teams: Teams) -> None:
        await asyncio.to_thread(make_nodes, teams.cluster, nodes)

    return create


async def alone(teams: Teams) -> None:
    teams.requests = dict.fromkeys(REQUESTING, 0) | {"o0-l0": 6000}


async def delete_quota(teams: Teams) -> None:
    await teams.call("DELETE", teams.quotas("o2-l1"))


async def make_quota(teams: Teams) -> None:
    await teams.call("POST", teams.quotas(), leaf("o2-l1", "o2-d0"))


STEP_S = 3_000
"""Longest time of a step, on a machine that is busy with other work."""

STEPS: dict[str, Step] = {
    "one team alone borrows": alone,
    "all five want 12,000": want(6000, *REQUESTING),
    "the max of o1-l0 is 2,000": limit("o1-l0", "2"),
    "a node is lost": lose(NODES[3]),
    "two more are lost": lose(*NODES[1:3]),
    "two nodes return": add(*NODES[1:3]),
    "o2-l1 wants 2,000": want(2000, "o2-l1"),
    "the quota o2-l1 is deleted": delete_quota,
    "it is made again": make_quota,
    "the last node returns": add(NODES[3]),
    "o2-l1 wants 6,000 again": want(6000, "o2-l1"),
    "the max of o1-l0 is 6,000": limit("o1-l0", "6"),
}
"""The last steps undo the first, so that the steps can be repeated."""


class Kills:
    """Services killed at random, while steps go on.

    With fewer kills than steps, each of the first steps has one; else the kills are spread at random, and each step has
    some.

    Attributes:
        step: name of the current step.
        during: step -> service -> how often it was killed.
    """

    def __init__(self, supervisor: Supervisor, count: int) -> None:
        self._supervisor = supervisor
        self._count = count
        self._chance = random.Random(count)
        self._one_a_step = asyncio.Semaphore(0) if count < len(STEPS) else None
        self.step = ""
        self.during: dict[str, Counter[str]] = {step: Counter() for step in STEPS}

    async def go(self) -> None:
        for _ in range(self._count):
            if self._one_a_step is not None:
                await self._one_a_step.acquire()
            await self._supervisor.wait_leading(240)  # else no step would progress between two kills
            await asyncio.sleep(self._chance.uniform(0.5, 5))
            service = self._chance.choice(("scheduler", "quota-ledger", "quota-ledger", "gateway"))
            self._supervisor.kill(service)
            self.during[self.step][service] += 1
        await self._supervisor.wait_leading(240)

    async def another(self) -> None:
        """Waits for the next kill; returns at once when all are done."""
        before = self.done
        if self._one_a_step is not None:
            self._one_a_step.release()
        await until(lambda: self.done > before or self.done == self._count, "the next kill")

    @property
    def done(self) -> int:
        return sum(killed.total() for killed in self.during.values())


async def confirm_deletions(nats: str) -> None:
    """Does the work of an operator: `koord cluster confirm`.

    A step deletes four fifths of all pods within seconds. A gateway that is killed meanwhile finds them missing in its
    first list, and does not believe it.
    """
    while True:
        await asyncio.sleep(5)
        try:
            found = await request_lists(Endpoints("", nats), SHORT_LISTS)
            if seen := {short.resource: short.lists for short in found.short if short.repeated}:
                await request_lists(Endpoints("", nats), CONFIRM, msgspec.json.encode(Confirmation(seen)))
                print(f"confirmed: {', '.join(map(str, found.short))}", flush=True)
        except KoordError as error:  # no gateway leads just now
            print(error, flush=True)


def make_nodes(cluster: Cluster, names: Sequence[str]) -> None:
    capacity = {"cpu": "10", "memory": "64Gi", "pods": "1000"}
    create_nodes(cluster.api, [node_object(name, capacity=capacity) for name in names])


@pytest.fixture
async def site(own_cluster: StartCluster, tmp_path: Path) -> AsyncIterator[tuple[Cluster, System]]:
    # A cluster of its own: the shared capacity is the sum of all nodes.
    cluster = await asyncio.to_thread(own_cluster, installed=True)
    await asyncio.to_thread(cluster.create_namespace, "teams")
    await asyncio.to_thread(make_nodes, cluster, NODES)
    env = {
        "quota-ledger": {"KOORD_QUOTA_LEDGER_REVOKE": "true", "KOORD_QUOTA_LEDGER_REVOKE_AFTER_S": "1"},
        # Two nodes that are lost take half of all pods: on a slow machine their quotas are revoked before their pods are
        # removed. The budgets of evictions have tests of their own.
        "gateway": WITHOUT_EVICTION_BUDGETS,
    }
    async with running(cluster, tmp_path, env, more=("quota-ledger",)) as system:
        yield cluster, system


@pytest.mark.timeout(14_400)
@pytest.mark.parametrize(
    ("pod_milli", "count"),
    [pytest.param(1000, 4, id="short"), pytest.param(25, 200, id="long", marks=pytest.mark.soak)],
)
async def test_five_teams_share_forty_quotas_whatever_is_killed(
    site: tuple[Cluster, System], pod_milli: int, count: int
) -> None:
    """Repeats the steps until all kills are done; in the long form with 2,400 pods."""
    cluster, system = site
    teams, kills, rounds = Teams(cluster, "teams", pod_milli), Kills(system.supervisor, count), 0
    for body in forty():
        await teams.call("POST", teams.quotas(), body)
    async with beside(confirm_deletions(system.endpoints.nats)), asyncio.TaskGroup() as group:
        killing = group.create_task(kills.go())
        while not rounds or not killing.done():
            for row in table():
                kills.step = row.step
                await STEPS[row.step](teams)
                await kills.another()
                due = expected(row, teams)
                assert await teams.settled(due, STEP_S) == due, row.step
                assert sum(row.runtimes.values()) == min(row.shared, sum(teams.requests.values()))  # nothing lies idle
                print(f"round {rounds + 1}, {row.step}: after {kills.done} kills", flush=True)
            rounds += 1
    runs = sum(due[name].used for name in REQUESTING) // pod_milli
    await until(in_thread(lambda: len(teams.running()) == runs), f"{runs} running pods")
    found = audit(await fold_log(system.log))
    print(f"{rounds} rounds, {teams.made.total()} pods made, {found.verified.events} events")
    print(*(f"{step}: {dict(killed)}" for step, killed in kills.during.items()), sep="\n")
    assert found.verified.findings == []
    assert found.exceeded == []
    assert found.charged == teams.running()
    assert kills.done == count
    assert len(list(filter(None, kills.during.values()))) == min(count, len(STEPS)), "a step had no kill"
    assert set().union(*kills.during.values()) == {"scheduler", "quota-ledger", "gateway"}
