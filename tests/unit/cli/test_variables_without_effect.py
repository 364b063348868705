"""Variables of services: a mistyped one is named, and every one that manifests and documents name is read."""

import re
from pathlib import Path

import pytest

from cli.service_list import AGENTS, SERVICES, settings_of, variables_without_effect
from shared.settings import variable_of

ROOT = Path(__file__).parents[3]
WRITTEN = [
    ROOT / "README.md", ROOT / "compose.yaml", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("services/**/*.md")),
    *sorted(ROOT.glob("k8s/**/*.yaml")),
]  # fmt: skip
NAME = re.compile(r"\bKOORD_[A-Z0-9_]*[A-Z0-9]\b(?!_)")


def test_a_mistyped_variable_is_named_with_the_closest_one() -> None:
    environment = {"KOORD_SIMULATOR_NDES": "5", "KOORD_SIMULATOR_PODS": "5", "KOORD_POSTGRES": "x", "PATH": ""}
    assert variables_without_effect(("simulator", "scheduler"), environment) == [
        "KOORD_SIMULATOR_NDES sets nothing; perhaps 'KOORD_SIMULATOR_NODES' is meant; see `koord run simulator --help`"
    ]


def test_an_agent_and_retention_have_settings_of_their_own() -> None:
    environment = {"KOORD_NODE_AGENT_NODE": "n", "KOORD_SCHEDULER_RETENTION_DAYS": "3"}
    assert variables_without_effect((*SERVICES, *AGENTS), environment) == []


@pytest.mark.parametrize("name", [*SERVICES, *AGENTS])
def test_every_variable_that_is_written_down_is_read(name: str) -> None:
    prefix = variable_of(name, "") + "_"
    written = {found for path in WRITTEN for found in NAME.findall(path.read_text()) if found.startswith(prefix)}
    assert settings_of(name)
    assert variables_without_effect((name,), dict.fromkeys(written, "")) == []
