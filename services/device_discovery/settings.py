"""Settings of device discovery: `KOORD_DEVICE_DISCOVERY_<FIELD>`; `koord run device-discovery --help` prints this table."""

from typing import Annotated

from msgspec import Meta

from shared.settings import Settings


class DiscoverySettings(Settings, frozen=True, kw_only=True):
    """Bounds of accepted inventories."""

    max_clock_skew_s: Annotated[float, Meta(ge=0, description="seconds an inventory may lie ahead of our clock")] = 30
    change_interval_s: Annotated[
        float,
        Meta(
            gt=0,
            description="a node's changes are recorded at this interval on average; devices that fail or vanish, at once",
        ),
    ] = 10
    change_burst: Annotated[
        int, Meta(ge=1, description="changes of a node that are recorded at once after a pause")
    ] = 10
    stale_after_s: Annotated[
        int,
        Meta(ge=1, description="a node with devices that sends no inventory for this long is logged; its devices stay"),
    ] = 300
    client: Annotated[str, Meta(description="MQTT client id; the service's name when empty")] = ""
