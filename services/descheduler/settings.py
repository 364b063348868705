"""The settings of the descheduler: `KOORD_DESCHEDULER_<FIELD>`; `koord run descheduler --help` prints this table."""

from typing import Annotated

from msgspec import Meta

from shared.settings import Settings


class DeschedulerSettings(Settings, frozen=True, kw_only=True):
    """Settings of the process; profiles, plugins and the interval of cycles are in the configuration."""

    config: Annotated[
        str,
        Meta(
            description="DeschedulerConfiguration file; without one, ConfigMap koord-descheduler-config, else no plugin runs"
        ),
    ] = ""
    config_interval_s: Annotated[
        float, Meta(gt=0, description="seconds between two reads of the configuration file")
    ] = 5.0
    debounce_s: Annotated[
        float,
        Meta(ge=0, description="without a full listing of the cluster, nothing is decided for this long after a start"),
    ] = 5.0
