"""Settings of the audit service: `KOORD_AUDIT_<FIELD>` in the environment."""

from typing import Annotated

from msgspec import Meta

from services.audit.service_manifest import CHECKPOINT_CONFIG_MAP
from shared.settings import Settings


class AuditSettings(Settings, frozen=True, kw_only=True):
    """Limits of the streams, and storage of checkpoints."""

    source: Annotated[
        str, Meta(description="`source` of the CloudEvents and of checkpoints; one for each installation")
    ] = "koordstream"
    stream_days: Annotated[float, Meta(gt=0, description="days that a stream keeps an event")] = 7.0
    stream_mib: Annotated[int, Meta(ge=1, description="MiB that the stream of a context may take")] = 256
    stream_replicas: Annotated[int, Meta(ge=1, le=5, description="NATS servers that keep each stream")] = 1
    window: Annotated[int, Meta(ge=1, le=2_000, description="events per acknowledgement")] = 500
    poll_interval_s: Annotated[float, Meta(gt=0, description="seconds between checks for a wiped stream")] = 5.0
    key: Annotated[
        str, Meta(description="file of the Ed25519 key that signs checkpoints; koord audit keygen makes one")
    ] = ""
    checkpoint_interval_s: Annotated[float, Meta(ge=0.1, description="seconds between checkpoints")] = 60.0
    checkpoint_dir: Annotated[
        str, Meta(description="folder for checkpoints, best on another machine's disk; empty: none")
    ] = ""
    checkpoint_days: Annotated[float, Meta(gt=0, description="days that the table and the folder keep checkpoints")] = (
        400.0
    )
    config_map: Annotated[
        str,
        Meta(description="ConfigMap that carries the newest checkpoint; the gateway writes no other; empty: none"),
    ] = CHECKPOINT_CONFIG_MAP
