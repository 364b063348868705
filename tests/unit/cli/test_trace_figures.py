"""The figures of a trace: fragmentation by request as a scalar twin has it, and the ceiling beside the allocation."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.main import koord
from cli.packing.fragmentation import FreeAmounts, PackedType, usable_percent
from tests.support.hypothesis_examples import examples

NODES = """\
sn,cpu_milli,memory_mib,gpu,model
a,64000,65536,2,T4
b,32000,65536,2,P100
"""
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos
half,1000,1024,1,500,,LS
large,8000,1024,1,1000,,LS
picky,1000,1024,1,1000,T4,LS
plain,1000,1024,0,0,,BE
"""

SHARES = st.lists(st.sampled_from((0, 20, 50, 100)), min_size=2, max_size=2)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), SHARES, st.sampled_from("xy")), min_size=1, max_size=4),
    st.integers(0, 4), st.integers(0, 4), st.sampled_from(((1, 20), (1, 50), (1, 100), (2, 100))),
    st.sampled_from(((), ("x",))),
)  # fmt: skip
@settings(max_examples=examples(100), deadline=None)
def test_what_a_type_can_use_is_what_as_many_of_its_pods_as_fit_would_have(
    nodes: list[tuple[int, int, list[int], str]], cpu: int, memory: int, of: tuple[int, int], models: tuple[str, ...]
) -> None:
    expected = 0
    for cpu_there, memory_there, free, model in nodes:
        cards, pods = list(free), 0
        if models and model not in models:
            continue
        while True:
            fitting = sorted((place for place, left in enumerate(cards) if left >= of[1]), key=lambda at: cards[at])
            if len(fitting) < of[0] or cpu_there < cpu * (pods + 1) or memory_there < memory * (pods + 1):
                break
            for place in fitting[: of[0]]:
                cards[place] -= of[1]
            pods += 1
        expected += pods * of[0] * of[1]
    cpu_left, memory_left, cards_left = (np.array([each[at] for each in nodes], np.int64) for at in range(3))
    free_amounts = FreeAmounts(cpu_left, memory_left, cards_left, tuple(each[3] for each in nodes))
    assert usable_percent(free_amounts, PackedType(cpu, memory, *of, models)) == expected


def simulated(folder: Path, *arguments: str, nodes: str = NODES) -> dict[str, Any]:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "pods.csv").write_text(PODS)
    files = ("--nodes", str(folder / "nodes.csv"), "--pods", str(folder / "pods.csv"))
    result = CliRunner().invoke(koord, ["simulate", *files, "--policy", "packing", *arguments, "--json"])
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_free_gpus_are_fragments_for_pods_whose_model_they_lack(tmp_path: Path) -> None:
    found = simulated(tmp_path, "--arrive-percent", "1")  # the first pod that is drawn with a GPU, and no more
    by_request = {(each["share"], tuple(each["models"])): each for each in found["fragmentation"]}
    assert len(by_request) == 1, "requests that arrived"
    ((share, models),) = by_request
    (each,) = by_request.values()
    left = 400 - share
    assert each["usable_percent"] + each["fragmented_percent"] == pytest.approx(left / 4)
    assert each["fragmented_percent"] >= (50 if models else 0), "those of the other model"


def test_the_ceiling_is_above_the_allocation_and_the_gap_is_their_difference(tmp_path: Path) -> None:
    pytest.importorskip("highspy", reason="the solver HiGHS is not installed")
    found = simulated(tmp_path, "--arrive-percent", "130", "--ceiling")
    ceiling, reached = found["ceiling_percent"], found["allocation_130_percent"]
    assert reached <= ceiling <= 100
    assert found["gap_points"] == pytest.approx(ceiling - reached)


def test_there_is_no_ceiling_where_the_first_pods_cannot_all_be_placed(tmp_path: Path) -> None:
    pytest.importorskip("highspy", reason="the solver HiGHS is not installed")
    found = simulated(tmp_path, "--arrive-percent", "130", "--ceiling", nodes=NODES.replace("000,65536", "00,65536"))
    assert (found["ceiling_percent"], found["gap_points"]) == (None, None)


def test_the_ceiling_needs_pods_that_arrive(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    files = ("--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv"))
    result = CliRunner().invoke(koord, ["simulate", *files, "--ceiling"])
    assert result.exit_code == 2
    assert "--ceiling goes with --arrive-percent" in result.stderr


OPENB = Path(os.environ.get("KOORD_SHARED", Path(__file__).parents[3] / "../shared")) / "data" / "openb"


@pytest.mark.skipif(not OPENB.is_dir(), reason=f"no trace at {OPENB}; set KOORD_SHARED")
def test_the_published_experiment_is_above_the_published_result_and_near_the_ceiling() -> None:
    pytest.importorskip("highspy", reason="the solver HiGHS is not installed")
    files = (
        "--nodes",
        str(OPENB / "openb_node_list_gpu_node.csv"),
        "--pods",
        str(OPENB / "openb_pod_list_default.csv"),
    )
    arguments = ("--policy", "packing", "--arrive-percent", "130", "--ceiling", "--json")
    found = json.loads(CliRunner().invoke(koord, ["simulate", *files, *arguments]).stdout)
    assert found["allocation_130_percent"] > 95.39
    assert found["gap_points"] <= 0.8
    assert found["gpuless_rejected"] == 0
    total = found["allocation_130_percent"] + found["fragmentation_percent"]
    assert 98 < total <= 100.001, "few pods could use what is left at the end"
