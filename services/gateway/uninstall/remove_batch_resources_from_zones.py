"""The zones of a NodeResourceTopology that another client made: this system added resources to them. Pure.

The API server records one manager for the whole list, the last one that wrote it, so that ownership cannot show which
resources are this system's: their names do.
"""

from collections.abc import Mapping
from typing import Any

from services.gateway.uninstall.field_ownership import Raw

ZONES = "zones"
_ADDED = "kubernetes.io/batch-"


def keep_zones(patches: Mapping[str, Raw], body: Mapping[str, Any]) -> dict[str, Raw]:
    """Returns patches that take the added resources out of the zones, where the given ones remove the whole list."""
    patch = patches.get("", {})
    if ZONES not in patch:
        return dict(patches)
    zones = [_without_added(zone) for zone in body[ZONES]]
    rest = {name: each for name, each in patch.items() if name != ZONES}
    own = rest | ({ZONES: zones} if zones != body[ZONES] else {})
    return {subresource: each for subresource, each in {**patches, "": own}.items() if each}


def _without_added(zone: Raw) -> Raw:
    resources = zone.get("resources")
    if not resources:
        return zone
    return zone | {"resources": [each for each in resources if not each["name"].startswith(_ADDED)]}
