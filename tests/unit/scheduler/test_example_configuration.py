"""The published example of a configuration changes the load thresholds of the default one, and nothing else."""

from pathlib import Path
from typing import Any

import yaml

from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE

EXAMPLE = Path(__file__).parents[3] / "k8s" / "examples" / "scheduler-config-loadaware.yaml"
CHANGED = "LoadAwareScheduling"


def _profile(text: str) -> dict[str, Any]:
    (profile,) = yaml.safe_load(text)["profiles"]
    return dict(profile)


def test_it_is_the_default_one_but_for_the_load_thresholds() -> None:
    default = _profile(DEFAULT_PROFILE)
    example = _profile(yaml.safe_load(EXAMPLE.read_text())["data"]["koord-scheduler-config"])
    assert example["plugins"] == default["plugins"]
    config, expected = (
        {each["name"]: each["args"] for each in profile["pluginConfig"]} for profile in (example, default)
    )
    assert config.keys() == expected.keys()
    assert [name for name in config if config[name] != expected[name]] == [CHANGED]
