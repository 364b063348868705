"""Quota trees as in the published guide: nodes of two zones, a tree for each, a team in one of them, and a pod.

The numbers are the guide's: nodes of 4 cores of which 3.9 are allocatable, two in zone k and one in zone g; the
tree-ids are the guide's, too.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cli.dev.fake_nodes import create_nodes, node_object
from cli.processes.free_ports import free_port
from cli.quota.rebuild_state import fold_log
from shared.kube.elastic_quota import PREFIX
from tests.cluster.fixtures import StartCluster
from tests.e2e.quota_log_audit import audit
from tests.e2e.stage import Stage
from tests.e2e.teams import QuotaStatus, Teams, quota
from tests.support.kube_system import K8S, running
from tests.support.waiting import in_thread, until

EXAMPLES = K8S / "examples"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
UNBOUNDED = {"cpu": "4611686018427387", "memory": "4611686018427387"}
NODES = [("k-1", "k", "13132408Ki"), ("k-2", "k", "13132408Ki"), ("g-1", "g", "12903364Ki")]
TREES = {"k": "18340441938858026940", "g": "8589367430557242040"}
TOTALS = {"k": {"cpu": "7800m", "memory": "26264816Ki"}, "g": {"cpu": "3900m", "memory": "12903364Ki"}}


def place(zone: str) -> dict[str, str]:
    return {REGION: "cn-hangzhou", ZONE: f"cn-hangzhou-{zone}"}


def annotations(body: dict[str, Any]) -> dict[str, Any]:
    found = body["metadata"].get("annotations") or {}
    return {key.removeprefix(PREFIX): json.loads(text) for key, text in found.items() if key.startswith(PREFIX)}


@pytest.mark.timeout(600)
async def test_two_zones_are_two_trees(own_cluster: StartCluster, tmp_path: Path) -> None:
    cluster = await asyncio.to_thread(own_cluster, installed=True)
    for folder in ("base", "webhooks"):
        await asyncio.to_thread(cluster.apply, K8S / folder)
    await asyncio.to_thread(cluster.create_namespace, "kube-system")  # the account in it, that is
    create_nodes(
        cluster.api,
        [
            node_object(name, labels=place(zone), allocatable={"cpu": "3900m", "memory": memory})
            for name, zone, memory in NODES
        ],
    )
    webhooks = f"127.0.0.1:{free_port()}"
    gateway = {
        "KOORD_GATEWAY_WEBHOOK_LISTEN": webhooks,
        "KOORD_GATEWAY_WEBHOOK_URL": f"https://{webhooks}",
        "KOORD_GATEWAY_WEBHOOK_GATES": "MultiQuotaTree=true",
        "KOORD_GATEWAY_WEBHOOK_POLL_INTERVAL_S": "0.5",
    }
    async with running(cluster, tmp_path, {"gateway": gateway}, more=("quota-ledger",)) as system:
        teams = Teams(cluster, "kube-system", 500)
        stage = Stage(cluster, "kube-system", lambda *_: [])

        def quotas() -> dict[str, dict[str, Any]]:
            return {body["metadata"]["name"]: body for body in cluster.api.call("GET", teams.quotas())["items"]}

        def is_requested() -> bool:
            probe = quota("probe", "", 0, 1000, is_parent=False)
            return "shared-weight" in annotations(cluster.api.call("POST", f"{teams.quotas()}?dryRun=All", probe))

        await until(in_thread(is_requested), "webhook that is called")
        await asyncio.to_thread(cluster.apply, EXAMPLES / "webhooks" / "quota-trees.yaml")
        await until(
            in_thread(lambda: {f"cn-hangzhou-{zone}-root-quota" for zone in TREES} <= quotas().keys()), "root quotas"
        )
        for zone, total in TOTALS.items():
            root = quotas()[f"cn-hangzhou-{zone}-root-quota"]
            assert root["metadata"]["labels"] == place(zone) | {
                PREFIX + "is-parent": "true",
                PREFIX + "is-root": "true",
                PREFIX + "parent": "koordinator-root-quota",
                PREFIX + "profile": f"cn-hangzhou-{zone}-nodepool",
                PREFIX + "tree-id": TREES[zone],
            }
            assert root["spec"] == {"min": total, "max": UNBOUNDED}
            assert annotations(root)["shared-weight"] == UNBOUNDED
            assert annotations(root)["total-resource"].items() >= total.items()

        await asyncio.to_thread(cluster.apply, EXAMPLES / "webhooks" / "quota-trees-team.yaml")
        assert await stage.placed("pod-example") in {"k-1", "k-2"}
        terms = stage.pod("pod-example")["spec"]["affinity"]["nodeAffinity"]
        assert terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] == [
            {"matchExpressions": [{"key": key, "operator": "In", "values": [at]} for key, at in place("k").items()]}
        ]
        one = {"cpu": "1", "memory": "2Gi"}
        await until(in_thread(lambda: (quotas()["test-child"].get("status") or {}).get("used") == one), "use")
        child = quotas()["test-child"]
        assert child["metadata"]["labels"][PREFIX + "tree-id"] == TREES["k"]
        assert annotations(child) == {
            "child-request": one,
            "request": one,
            "runtime": one,
            "shared-weight": {"cpu": "3", "memory": "6Gi"},
        }

        # A team may use 6 of a tree: in k, where the child lends 2 of its 3, it gets them; in g there are 3.9 for it.
        for zone in TREES:
            body = quota(f"{zone}-team", f"cn-hangzhou-{zone}-root-quota", 1000, 6000, is_parent=False)
            body["spec"] = {bound: amounts | {"memory": "6Gi"} for bound, amounts in body["spec"].items()}
            body["spec"]["min"]["memory"] = "0"
            await teams.call("POST", teams.quotas(), body)
        teams.requests = {"k-team": 8000, "g-team": 8000}
        statuses = {"k-team": QuotaStatus(6000, 6000), "g-team": QuotaStatus(3900, 3500)}
        assert await teams.settled(statuses, within_s=60, among=statuses) == statuses
        found = audit(await fold_log(system.log))
        assert found.verified.findings == []
        assert found.exceeded == []
        assert found.charged == teams.running()

        # A deleted profile leaves its quota to its users, as upstream: an edit of what the profile set stays.
        released = "kube-system/cn-hangzhou-g-root-quota"

        async def is_released() -> bool:
            rows = [row async for row in system.log.rows(context="quota", kind="FieldsDesired", key=released)]
            intents = {f"quota/{row.seq}" for row in rows if json.loads(row.data)["fields"] == ""}
            outcomes = [
                row async for row in system.log.rows(context="cluster", kind="DesiredStateApplied", key=released)
            ]
            return any(row.cause in intents for row in outcomes)

        profiles = "/apis/quota.koordinator.sh/v1alpha1/namespaces/kube-system/elasticquotaprofiles"
        await teams.call("DELETE", f"{profiles}/cn-hangzhou-g-nodepool")
        await until(is_released, "release of the quota")
        edited = {"metadata": {"labels": {REGION: "edited"}}}
        await teams.call("PATCH", teams.quotas("cn-hangzhou-g-root-quota"), edited)
        later = quota("later", "", 0, 1000, is_parent=False)
        await teams.call("POST", teams.quotas(), later)

        async def is_declared() -> bool:
            return any([row.key == "later" async for row in system.log.rows(context="quota", kind="QuotaDeclared")])

        # The gateway has observed the edit before this quota, and would undo it by then.
        await until(is_declared, "declaration of a later quota")
        assert quotas()["cn-hangzhou-g-root-quota"]["metadata"]["labels"][REGION] == "edited"
