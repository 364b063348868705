"""The stock plugins on recorded clusters: one node alone gets the answer that all nodes at once get.

That the answers are upstream's is what `tests/parity` shows. The cases are not part of the project; without them this is skipped.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from cli.parity.tally import read_cases
from services.scheduler.parity.stock import Cluster, ask_of
from services.scheduler.room import Room

SHARED = Path(os.environ.get("KOORD_SHARED", Path(__file__).parents[3] / "../shared"))
CASES = Path(os.environ.get("KOORD_VECTORS", SHARED / "vectors")) / "stock.jsonl"
pytestmark = pytest.mark.skipif(
    not CASES.exists(), reason=f"{CASES} is absent; set KOORD_VECTORS to the recorded cases"
)


def test_each_node_alone_is_judged_as_all_at_once() -> None:
    compared = 0
    for case in read_cases(CASES):
        cluster = Cluster(case.input)
        table, index = cluster.index.table, cluster.index
        for raw in case.input.get("incoming") or [case.input["pod"]]:
            ask = ask_of(raw)
            for name, plugin in cluster.plugins.items():
                trial = plugin.trial(Room(table, index.book, index.surroundings), index.ledgers[plugin], 0)
                every = slice(0, table.size)
                for at_once, alone in (
                    (trial.filter(ask, every), trial.filter_at),
                    (trial.score(ask, every), trial.score_at),
                ):
                    values = np.zeros(table.size, np.int64) if at_once is None else at_once
                    assert [alone(ask, row) for row in range(table.size)] == values.tolist(), (case.case, name)
                    compared += 1
    assert compared > 1000
