"""`koord bench discovery` measures inventories that are accepted, beside a node that is refused and one that flaps."""

import json

from click.testing import CliRunner

from cli.main import koord


def test_the_measured_inventories_were_accepted_and_those_with_too_many_cards_refused() -> None:
    found = CliRunner().invoke(
        koord, ["bench", "discovery", "--nodes", "3", "--cards", "2", "--seconds", "2", "--json"]
    )
    assert found.exit_code == 0, found.output
    figures = json.loads(found.stdout)
    assert figures["refused"] >= 1
    assert figures["accepted"] >= figures["changes"] >= 1
    assert figures["events"] >= 1, "the flapping card was recorded"
    assert 0 <= figures["discovery_cores"] < 2, "a few inventories may cost less than a tick of the clock"
    assert 0 < figures["first_s"] <= figures["devices_first_s"]
