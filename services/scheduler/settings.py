"""Settings of the scheduler: `KOORD_SCHEDULER_<FIELD>` in the environment."""

from typing import Annotated

from msgspec import Meta

from services.scheduler.framework.config.decision_settings import DecisionSettings
from shared.domain.scheduler_gates import scheduler_gates
from shared.runtime.http_access import Access
from shared.runtime.http_server import Ports
from shared.settings import Settings


class SchedulerSettings(Settings, frozen=True, kw_only=True):
    """Settings of the process; profiles and plugins are in the configuration file."""

    config: Annotated[
        str,
        Meta(
            description="KubeSchedulerConfiguration file; without one, ConfigMap koord-scheduler-config or the default profile"
        ),
    ] = ""
    shadow_scheduler: Annotated[
        str,
        Meta(
            description="another scheduler's name: its pods are left to it, and each binding is compared with our choice"
        ),
    ] = ""
    batch_size: Annotated[int, Meta(ge=1, le=4096, description="pods a cycle takes at most")] = 256
    cycle_interval_s: Annotated[
        float, Meta(ge=0, description="seconds from one cycle's start to the next; pods that come meanwhile share it")
    ] = 0.02
    quota_timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            description="how long a cycle waits for the quota ledger's response; without one its pods with a quota wait, others go on",
        ),
    ] = 1.0
    config_interval_s: Annotated[
        float, Meta(gt=0, description="seconds between two reads of the configuration file")
    ] = 5.0
    listen: Annotated[
        str, Meta(description="host:port, with TLS, for the extender's verbs and the views below /apis/v1; empty: none")
    ] = ""
    tls_cert: Annotated[str, Meta(description="certificate chain of that port, PEM")] = ""
    tls_key: Annotated[str, Meta(description="its key, PEM")] = ""
    insecure_listen: Annotated[str, Meta(description="the same without TLS; empty: none")] = ""
    client_ca: Annotated[
        str, Meta(description="authority of the certificates by which callers are admitted, PEM; empty: none")
    ] = ""
    client_names: Annotated[
        str, Meta(description="common names of these certificates, comma-separated; empty: every one of the authority")
    ] = ""
    token_file: Annotated[
        str,
        Meta(
            description="file with one token a line; a caller with one is admitted: Authorization: Bearer, or the password in kube-scheduler's urlPrefix; empty: none"
        ),
    ] = ""
    allow_anonymous: Annotated[
        bool, Meta(description="admit every caller, also beyond loopback: whoever reaches the port may bind and evict")
    ] = False
    extender_profile: Annotated[
        str,
        Meta(
            description="profile that evaluates pods of other schedulers; empty: the one of their scheduler's name, else the first"
        ),
    ] = ""
    extender_timeout_s: Annotated[
        float,
        Meta(gt=0, description="how long a binding requested by an extender's caller may take; below its httpTimeout"),
    ] = 4.5
    extender_max_victims: Annotated[
        int, Meta(ge=0, description="victims that an extender's caller may name for one node; 0: it evicts nobody")
    ] = 32
    by_sub_priority: Annotated[
        bool,
        Meta(description="try pods of equal spec.priority in the order of their label koordinator.sh/priority"),
    ] = True
    backfill: Annotated[
        bool,
        Meta(
            description="plan the start of a gang that waits, and let pods behind it pass only where that start does not move"
        ),
    ] = False
    believes_annotations: Annotated[
        bool,
        Meta(
            description="count the CPUs in scheduling.koordinator.sh/resource-status of pods that another scheduler placed; on while moving from Koordinator, with its webhooks in force"
        ),
    ] = False

    feature_gates: Annotated[
        str,
        Meta(
            description="gates as Name=true,...: OmitNodeLabelsForReservation, SkipReservationFitsNode, DevicePluginAdaption,"
            " ResizePod"
        ),
    ] = ""

    def ports(self) -> Ports:
        """The HTTP ports, and the callers that they admit."""
        names = tuple(filter(None, (name.strip() for name in self.client_names.split(","))))
        access = Access(self.client_ca, names, self.token_file, self.allow_anonymous)
        return Ports("KOORD_SCHEDULER_", self.listen, self.insecure_listen, self.tls_cert, self.tls_key, access)

    def decision_settings(self) -> DecisionSettings:
        """The values that are recorded with the configuration."""
        ports = self.ports()
        return DecisionSettings(
            self.batch_size,
            self.shadow_scheduler,
            self.extender_profile,
            self.believes_annotations,
            self.by_sub_priority,
            feature_gates=",".join(f"{name}=true" for name in sorted(scheduler_gates(self.feature_gates))),
            open_ports=" ".join(ports.addresses()) if ports.access.is_open else "",
            backfill=self.backfill,
        )
