"""Elastic quota on a real API server: teams that lend, borrow and give back, while a max is lowered, a node is lost and a quota goes.

Three levels: five orgs, each of two departments, of three and two leaves; forty quotas. After each step every object says what the rules make
of what the API holds; the numbers in the steps were worked out by hand.
"""

import asyncio
import contextlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli.dev.api import ApiRefused
from cli.dev.cluster import Cluster
from cli.dev.nodes import create_nodes, node_object
from cli.quota.fold import fold_log
from services.quota_ledger.books import Books
from services.quota_ledger.decide import caught_up
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.verify import checked, holds
from shared.domain.amounts import exceeding, nonzero
from shared.events import Event, Recorded
from shared.events.cluster import NodeObserved, ObjectObserved, PodObserved
from shared.events.quota import PodCharged
from shared.kube.elastic_quota import PREFIX, QUOTA_NAME, RESERVED
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.quantity import amounts
from tests.cluster.fixtures import MakeNodes, StartCluster
from tests.e2e.stage import Stage, pod
from tests.e2e.system import System, running
from tests.e2e.test_published_yaml import until

QUOTAS = "elasticquotas.scheduling.sigs.k8s.io"
ORGS = range(5)
NODES = [f"quota-{number}" for number in range(4)]
LEAVES = {"d0": ("l0", "l1", "l2"), "d1": ("l3", "l4")}
SETTINGS = LedgerSettings(revoke=True, revoke_after_s=1)


def quota(name: str, parent: str, least: int, most: int, *, is_parent: bool) -> dict[str, Any]:
    """In milli-cores."""
    labels = {PREFIX + "is-parent": "true" if is_parent else "false"}
    if parent:
        labels[PREFIX + "parent"] = parent
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "labels": labels},
        "spec": {"min": {"cpu": f"{least}m"}, "max": {"cpu": f"{most}m"}},
    }


def forty() -> list[dict[str, Any]]:
    found = []
    for org in ORGS:
        found.append(quota(f"o{org}", "", 4000, 24_000, is_parent=True))
        for department, leaves in LEAVES.items():
            name = f"o{org}-{department}"
            found.append(quota(name, f"o{org}", 800 * len(leaves), 12_000, is_parent=True))
            found += [quota(f"o{org}-{leaf}", name, 800, 6000, is_parent=False) for leaf in leaves]
    return found


class Teams:
    """The quotas and pods of a namespace, and a system that looks after them."""

    def __init__(self, system: System, stage: Stage, pod_milli: int) -> None:
        self.system = system
        self.stage = stage
        self.cluster = stage.cluster
        self.pod_milli = pod_milli
        self.made: Counter[str] = Counter()

    def quotas(self, name: str = "") -> str:
        path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{self.stage.namespace}/elasticquotas"
        return f"{path}/{name}" if name else path

    async def ask(self, leaf: str, milli: int) -> None:
        """Pods of a leaf, for so many milli-cores."""
        for _ in range(milli // self.pod_milli):
            self.made[leaf] += 1
            await self.stage.create(pod(f"{leaf}-{self.made[leaf]}", f"{self.pod_milli}m", labels={QUOTA_NAME: leaf}))

    def items(self, path: str) -> list[dict[str, Any]]:
        return list(self.cluster.api.call("GET", path)["items"])

    def truth(self) -> Books:
        """What the rules make of what the API holds."""
        state = SETTINGS.new_state()
        events: list[Event] = [
            NodeObserved(node=body["metadata"]["name"], object=msgspec.convert(body, Node))
            for body in self.items("/api/v1/nodes")
        ]
        for body in self.items(self.quotas()):
            key = f"{self.stage.namespace}/{body['metadata']['name']}"
            events.append(ObjectObserved(resource=QUOTAS, name=key, uid=body["metadata"]["uid"], object=body))
        for body in self.items("/api/v1/pods"):
            found = msgspec.convert(body, Pod)
            events.append(PodObserved(pod=found.metadata.key, pod_uid=found.metadata.uid, object=found))
        for seq, event in enumerate(events, 1):
            state.apply(Recorded("cluster", seq, event, 0))
        caught_up(state, LedgerSettings(), 0)
        return state.books

    def told(self) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
        """What each object says of its runtime and of what is used."""
        found = {}
        for body in self.items(self.quotas()):
            runtime = json.loads((body["metadata"].get("annotations") or {}).get(PREFIX + "runtime", "{}"))
            used = (body.get("status") or {}).get("used") or {}
            found[body["metadata"]["name"]] = (nonzero(amounts(runtime)), nonzero(amounts(used)))
        return found

    async def settle(self, used: dict[str, int], within_s: float = 90) -> Books:
        """Wait until these leaves use so much, and every object says what the rules make of it."""
        why = ""
        async with asyncio.timeout(within_s):
            while True:
                books = await asyncio.to_thread(self.truth)
                accounts = books.trees[""].accounts
                uses = {name: accounts[name].used.get("cpu", 0) for name in used}
                wanted = {name: (nonzero(a.runtime), nonzero(a.used)) for name, a in accounts.items()}
                told = await asyncio.to_thread(self.told)
                differ = {name: (said, wanted.get(name)) for name, said in told.items() if said != wanted.get(name)}
                if uses == used and not differ:
                    return books
                now = f"{uses} of {used}; {dict(list(differ.items())[:3])}"
                if now != why:
                    why = now
                    print(why)
                await asyncio.sleep(0.5)

    async def call(self, method: str, path: str, body: Any = None) -> None:
        await self.stage.call(method, path, body)


@pytest.fixture
async def teams(request: pytest.FixtureRequest, own_cluster: StartCluster, tmp_path: Path) -> AsyncIterator[Teams]:
    # A cluster of its own: what there is to share is the sum of all nodes.
    cluster = await asyncio.to_thread(own_cluster, crds=True)
    await asyncio.to_thread(cluster.create_namespace, "teams")

    def make(*names: str, **fields: Any) -> list[str]:
        return create_nodes(cluster.api, [node_object(name, **fields) for name in names])

    make(*NODES, capacity={"cpu": "10", "memory": "64Gi", "pods": "1000"})
    env = {"quota-ledger": {"KOORD_QUOTA_LEDGER_REVOKE": "true", "KOORD_QUOTA_LEDGER_REVOKE_AFTER_S": "1"}}
    async with running(cluster, tmp_path, env, more=("quota-ledger",)) as system:
        found = Teams(system, Stage(cluster, "teams", make), request.param)
        for body in forty():
            await found.call("POST", found.quotas(), body)
        yield found


async def no_charge_exceeded_a_quota(teams: Teams) -> None:
    """The whole log: balanced after each event, and no accepted charge above the runtime of its time."""
    folded = await fold_log(teams.system.log)
    books = folded.settings.new_state().books
    for record in folded.own:
        event = record.event
        before = books.pods.get(event.pod_uid) if isinstance(event, PodCharged) else None
        assert [*checked(books, record)] == []
        if (
            isinstance(event, PodCharged)
            and event.epoch
            and before
            and not before.charged
            and before.quota not in RESERVED
        ):
            account = books.trees[before.tree].accounts[before.quota]
            assert not exceeding(account.used, account.runtime), record
    assert [*holds(books)] == []


async def all_that_run_are_charged(teams: Teams) -> None:
    """What is on its way when the last step is over arrives: then the pods that the ledger charges are those that run."""
    async with asyncio.timeout(90):
        while True:
            runs = {
                body["metadata"]["uid"]
                for body in await asyncio.to_thread(teams.items, f"/api/v1/namespaces/{teams.stage.namespace}/pods")
                if body["spec"].get("nodeName")
            }
            folded = await fold_log(teams.system.log)
            charged = {uid for uid, held in folded.state.books.pods.items() if held.charged}
            if charged == runs:
                return
            print(f"charged and not running: {charged - runs}; running and not charged: {runs - charged}")
            await asyncio.sleep(2)


async def five_teams(teams: Teams) -> None:
    """The steps, with their numbers in milli-cores."""
    books = await teams.settle({})
    # One team borrows what nobody asks for: its leaf has 800 of its own and asks for all that its max allows.
    await teams.ask("o0-l0", 6000)
    books = await teams.settle({"o0-l0": 6000})
    assert books.trees[""].accounts["o0-l0"].runtime == {"cpu": 6000}
    # All five want 12,000 of 40,000: 4,000 are sure, 4,000 come by weight. The first gives back what it borrowed: a third of its pods go.
    for org in ORGS:
        for leaf in ("l0", "l1"):
            if (org, leaf) != (0, "l0"):
                await teams.ask(f"o{org}-{leaf}", 6000)
    everyone = {f"o{org}-{leaf}": 4000 for org in ORGS for leaf in ("l0", "l1")}
    books = await teams.settle(everyone, within_s=240)
    assert {books.trees[""].accounts[f"o{org}"].runtime["cpu"] for org in ORGS} == {8000}
    # A lowered max: the leaf gives way, its sibling takes what it leaves. Pods were taken from both while the teams came, so it asks anew.
    await teams.ask("o1-l1", 2000)
    await teams.settle(everyone)
    await teams.call("PATCH", teams.quotas("o1-l0"), {"spec": {"max": {"cpu": "2"}}})
    await teams.settle({**everyone, "o1-l0": 2000, "o1-l1": 6000}, within_s=120)
    # A node is lost with its pods: 30,000 are left, and each team has 6,000 at most.
    await teams.call("DELETE", f"/api/v1/nodes/{NODES[3]}")
    for body in teams.items(f"/api/v1/namespaces/{teams.stage.namespace}/pods"):
        if body["spec"].get("nodeName") == NODES[3]:
            with contextlib.suppress(ApiRefused):  # gone: its quota is over-used since the node is
                await teams.stage.remove(body["metadata"]["name"])
    books = await teams.settle({}, within_s=120)
    assert sum(books.trees[""].accounts[f"o{org}"].runtime["cpu"] for org in ORGS) <= 30_000
    # A quota is deleted: its pods count in the default group, and what they use is no longer shared.
    await teams.call("DELETE", teams.quotas("o2-l1"))
    books = await teams.settle({}, within_s=120)
    assert "o2-l1" not in books.trees[""].accounts
    assert books.trees[""].capacity["cpu"] < 30_000


@pytest.mark.timeout(900)
@pytest.mark.parametrize("teams", [500], indirect=True)
async def test_five_teams_share_forty_quotas(teams: Teams) -> None:
    await five_teams(teams)
    await all_that_run_are_charged(teams)
    await no_charge_exceeded_a_quota(teams)


@pytest.mark.parametrize(
    ("teams", "kills"),
    [pytest.param(500, 6, id="short"), pytest.param(25, 200, id="long", marks=pytest.mark.soak)],
    indirect=["teams"],
)
@pytest.mark.timeout(3600)
async def test_kills_leave_a_balanced_ledger_and_no_quota_exceeded(teams: Teams, kills: int) -> None:
    chance = random.Random(kills)
    steps = asyncio.create_task(five_teams(teams))
    for _ in range(kills):
        await teams.system.supervisor.wait_leading(60)  # else nothing would get done between two kills
        await asyncio.sleep(chance.uniform(0.5, 5))
        teams.system.supervisor.kill(chance.choice(("scheduler", "quota-ledger", "quota-ledger", "gateway")))
        if steps.done():
            break
    await steps
    await teams.system.supervisor.wait_leading(60)
    await all_that_run_are_charged(teams)
    await no_charge_exceeded_a_quota(teams)


def profile(name: str, pool: str) -> dict[str, Any]:
    """A tree of its own for the nodes of a pool, as the published guide to multiple quota trees has it."""
    return {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": {
            "name": name,
            "labels": {PREFIX + "tree-id": f"tree-{pool}"},
            "annotations": {PREFIX + "resource-keys": '["cpu"]'},
        },
        "spec": {
            "quotaName": f"{pool}-root",
            "quotaLabels": {PREFIX + "is-parent": "true"},
            "nodeSelector": {"matchLabels": {"node-pool": pool}},
        },
    }


@pytest.mark.timeout(300)
async def test_two_pools_of_nodes_are_two_trees(
    kube_cluster: Cluster, kube_nodes: MakeNodes, namespace: str, tmp_path: Path
) -> None:
    """Pool a has 20 cores and pool b 10. A team may take 16 of a tree: in a it gets them, in b the 10 that there are."""
    for pool, names in (("amd", ("amd-0", "amd-1")), ("arm", ("arm-0",))):
        kube_nodes(*names, capacity={"cpu": "10"}, labels={"node-pool": pool})
    async with running(kube_cluster, tmp_path, more=("quota-ledger",)) as system:
        teams = Teams(system, Stage(kube_cluster, namespace, kube_nodes), 1000)
        profiles = f"/apis/quota.koordinator.sh/v1alpha1/namespaces/{namespace}/elasticquotaprofiles"
        for pool in ("amd", "arm"):
            await teams.call("POST", profiles, profile(f"{pool}-profile", pool))
        await until(lambda: {"amd-root", "arm-root"} <= set(teams.told()), "root quotas", 60)
        for pool in ("amd", "arm"):
            body = quota(f"{pool}-team", f"{pool}-root", 4000, 16_000, is_parent=False)
            body["metadata"]["labels"][PREFIX + "tree-id"] = f"tree-{pool}"
            await teams.call("POST", teams.quotas(), body)
            for number in range(18):
                asked = pod(
                    f"{pool}-{number}", "1", labels={QUOTA_NAME: f"{pool}-team"}, nodeSelector={"node-pool": pool}
                )
                await teams.stage.create(asked)
        wanted = {"amd-team": ({"cpu": 16_000}, {"cpu": 16_000}), "arm-team": ({"cpu": 10_000}, {"cpu": 10_000})}
        await until(lambda: wanted.items() <= teams.told().items(), f"numbers {wanted}", 90)
        roots = {body["metadata"]["name"]: body for body in teams.items(teams.quotas())}
        total = json.loads(roots["amd-root"]["metadata"]["annotations"][PREFIX + "total-resource"])
        assert amounts(total)["cpu"] == 20_000
        waiting = [
            body["metadata"]["name"]
            for body in teams.items(f"/api/v1/namespaces/{namespace}/pods")
            if not body["spec"].get("nodeName")
        ]
        assert len(waiting) == 10
        assert "quotaName: amd-team" in await teams.stage.refused(next(name for name in waiting if "amd" in name))
        await all_that_run_are_charged(teams)
        await no_charge_exceeded_a_quota(teams)
