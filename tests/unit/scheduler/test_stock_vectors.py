"""What Kubernetes 1.35.6 itself answers for the stock plugins: filters and scores over whole clusters.

The cases are not part of the project; without them these tests are skipped.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from services.scheduler.ask import PodAsk, ask_key
from services.scheduler.framework import Plugin, Room, normalized
from services.scheduler.nodes import NodeTable
from services.scheduler.reasons import text
from services.scheduler.registry import PLUGINS
from shared.kube.node import Node
from shared.kube.pod import Pod

SHARED = Path(os.environ.get("KOORD_SHARED", Path(__file__).parents[3] / "../shared"))
CASES = Path(os.environ.get("KOORD_VECTORS", SHARED / "vectors")) / "stock.jsonl"
pytestmark = pytest.mark.skipif(
    not CASES.exists(), reason=f"{CASES} is absent; set KOORD_VECTORS to the recorded cases"
)

STOCK = ("NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit")


def cases(op: str) -> Iterator[dict[str, Any]]:
    with CASES.open() as lines:
        yield from (case for case in map(json.loads, lines) if case["op"] == op)


def ask_of(raw: Mapping[str, Any]) -> PodAsk:
    """The pod itself as a class of its own: the recorded ones may name a node."""
    pod = msgspec.convert(raw, Pod)
    return PodAsk(ask_key(pod), pod)


class Cluster:
    """Nodes and what runs on them, judged by one plugin at a time."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.table = NodeTable()
        self.args = given["pluginArgs"]
        for raw in given["nodes"]:
            node = msgspec.convert(raw, Node)
            self.table.set_node(node.metadata.name, node)
        for raw in given["pods"]:
            node = raw["spec"].get("nodeName")
            if node and raw.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                self.table.count(((self.table.row(node), ask_of(raw), 1),))

    def plugin(self, name: str) -> Plugin:
        return PLUGINS[name].make(self.args.get(name, {}), name)

    def refused(self, plugin: Plugin, ask: PodAsk) -> dict[str, list[str]]:
        """Node -> texts of its reasons, by all nodes at once and by each alone."""
        trial = plugin.trial(Room(self.table), None, 0)
        verdicts = trial.filter(ask, slice(0, self.table.size))
        if verdicts is None:
            verdicts = np.zeros(self.table.size, np.int64)
        assert [trial.filter_at(ask, row) for row in range(self.table.size)] == verdicts.tolist()
        return {
            name: sorted(text(*reason) for reason in plugin.reasons(ask, int(verdicts[row])))
            for name, row in self.table.rows.items()
            if verdicts[row]
        }

    def scores(self, plugin: Plugin, ask: PodAsk, nodes: list[str]) -> dict[str, int]:
        trial = plugin.trial(Room(self.table), None, 0)
        rows = np.array([self.table.rows[name] for name in nodes], np.intp)
        raw = trial.score(ask, rows)
        if raw is None:
            return dict.fromkeys(nodes, 0)
        assert [trial.score_at(ask, int(row)) for row in rows] == raw.tolist()
        scores = normalized(raw, int(raw.max(initial=0)), plugin.normalize)
        return dict(zip(nodes, scores.tolist(), strict=True))


def test_every_stock_filter_and_score_equals_what_kubernetes_answers_for_a_cluster() -> None:
    compared = 0
    for case in cases("cluster"):
        cluster = Cluster(case["input"])
        for raw, expected in zip(case["input"]["incoming"], case["output"]["incoming"], strict=True):
            ask = ask_of(raw)
            for name in STOCK:
                plugin = cluster.plugin(name)
                failed = {node: fail["reasons"] for node, fail in expected["plugins"][name].get("fail", {}).items()}
                assert cluster.refused(plugin, ask) == failed, (case["case"], ask.pod.metadata.name, name)
                for which in ("scores", "scoresOverAllNodes"):
                    scores = expected.get(which, {}).get(name, "Skip")
                    if scores != "Skip":
                        assert cluster.scores(plugin, ask, list(scores)) == scores, (case["case"], name, which)
                        compared += 1
    assert compared > 500


def test_every_case_of_room_and_its_strategies_equals_what_kubernetes_answers() -> None:
    compared = 0
    for case in cases("resources"):
        cluster, expected = Cluster(case["input"]), case["output"]["NodeResourcesFit"]
        plugin, ask = cluster.plugin("NodeResourcesFit"), ask_of(case["input"]["pod"])
        failed = {node: fail["reasons"] for node, fail in expected["fail"].items()}
        assert cluster.refused(plugin, ask) == failed, case["case"]
        assert cluster.scores(plugin, ask, list(expected["scores"])) == expected["scores"], case["case"]
        compared += 1
    assert compared > 100
