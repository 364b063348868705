"""`koord bench defrag` on a few nodes: each scene has the plan that it is built for."""

import json

from click.testing import CliRunner

from cli.bench.defrag import SCENES, defrag


def test_each_scene_has_its_plan() -> None:
    result = CliRunner().invoke(defrag, ["--nodes", "40", "--json"])
    assert result.exit_code == 0, result.output
    scenes = json.loads(result.stdout)["scenes"]
    assert {name: found["moves"] for name, found in scenes.items()} == {"pod": 1, "gang": 24, "gpu": 4, "none": 0}
    assert [name for name, found in scenes.items() if found["problem"]] == ["none"]
    assert scenes.keys() == SCENES.keys()
    assert all(0 < found["slice_ms"] <= found["search_ms"] for found in scenes.values())
