"""How long a context is kept and how much of it: as its service declares it, and the settings that take precedence."""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

from msgspec import Meta

from shared.settings import Settings

DAYS = 30.0
GB = 10**9


class Retention(NamedTuple):
    """Retention of a context, as its service declares it; 0 where it declares nothing.

    Attributes:
        days: how long its events are kept.
        gigabytes: how much they may take on disk.
        yields: its events are dropped early when the log's disk is nearly full.
    """

    days: float = 0.0
    gigabytes: float = 0.0
    yields: bool = False


class RetentionSettings(Settings, frozen=True, kw_only=True):
    """Retention of a service's context: `KOORD_<SERVICE>_<FIELD>`, else its declaration, else `KOORD_<FIELD>`."""

    retention_days: Annotated[
        float, Meta(ge=0, description="days that events are kept; 0: what the service declares, or 30")
    ] = 0.0
    retention_gb: Annotated[
        float,
        Meta(ge=0, description="GB on disk, beyond which the oldest go; 0: what the service declares, or no bound"),
    ] = 0.0

    @classmethod
    def of(cls, service: str, declared: Retention, environment: Mapping[str, str]) -> Retention:
        """Returns the retention in force for a service; a bound of 0 is none.

        Raises:
            BadSetting: a value is no number.
        """
        own, for_all = cls.load(service, environment), cls.load("", environment)
        return Retention(
            own.retention_days or declared.days or for_all.retention_days or DAYS,
            own.retention_gb or declared.gigabytes or for_all.retention_gb,
            declared.yields,
        )
