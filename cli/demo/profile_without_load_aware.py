"""The scheduler's shipped profile without load-awareness: what the second run of the demo places by."""

from pathlib import Path
from typing import Any

import yaml

PLUGIN = "LoadAwareScheduling"


def without_load_awareness(folder: Path) -> Path:
    """Write the profile as a file for KOORD_SCHEDULER_CONFIG."""
    from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE

    document = yaml.safe_load(DEFAULT_PROFILE)
    for profile in document["profiles"]:
        profile["pluginConfig"] = _others(profile["pluginConfig"])
        for point in profile["plugins"].values():
            point["enabled"] = _others(point.get("enabled", []))
    file = folder / "without-load-awareness.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return file


def _others(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["name"] != PLUGIN]
