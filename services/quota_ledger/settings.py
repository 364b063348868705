"""The settings of the quota ledger."""

from typing import Annotated, Self

import msgspec
from msgspec import Meta

from services.quota_ledger.decide.admission import AdmissionRules
from services.quota_ledger.state.ledger_state import LedgerState
from shared.settings import Settings


class LedgerSettings(Settings, frozen=True, kw_only=True):
    """KOORD_QUOTA_LEDGER_<FIELD> in the environment."""

    multi_tree: Annotated[bool, Meta(description="quotas with a tree-id form trees of their own")] = True
    default_group: Annotated[bool, Meta(description="pods of no quota count in the default group")] = True
    rejected_quota_waits: Annotated[
        bool, Meta(description="pods of a quota that is rejected wait; else they count in the default group")
    ] = True
    scale_min: Annotated[bool, Meta(description="minima are scaled down where their sum exceeds the capacity")] = True
    guarantees: Annotated[bool, Meta(description="the use below a quota is guaranteed to it; no quota lends")] = False
    check_quotas: Annotated[bool, Meta(description="a quota that breaks a rule keeps its last valid declaration")] = (
        True
    )
    keys_may_differ: Annotated[bool, Meta(description="a child may count fewer resources than its parent")] = False
    revoke: Annotated[bool, Meta(description="pods of overused quotas are evicted")] = False
    revoke_after_s: Annotated[float, Meta(ge=0, description="overuse tolerated before that")] = 120
    compare_runtime: Annotated[bool, Meta(description="pods are compared with the runtime quota; else with max")] = True
    check_parents: Annotated[bool, Meta(description="every ancestor must have capacity, too")] = False
    poll_interval_s: Annotated[
        float, Meta(gt=0, description="seconds between two checks of overuse, statuses and metrics")
    ] = 1.0
    listen: Annotated[str, Meta(description="host:port, with TLS, of the debug API below /apis/v1; empty: none")] = ""
    tls_cert: Annotated[str, Meta(description="certificate chain of that port, PEM")] = ""
    tls_key: Annotated[str, Meta(description="its key, PEM")] = ""
    insecure_listen: Annotated[str, Meta(description="the same without TLS; empty: none")] = ""

    def text(self) -> str:
        """Returns all settings as text for the log; `of_text` reads it."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Reads recorded settings; those that are absent have their defaults, unknown ones are ignored."""
        return msgspec.json.decode(text or "{}", type=cls)

    def admission(self) -> AdmissionRules:
        """Returns the options of the comparison of a pod with its quota."""
        return AdmissionRules(
            runtime=self.compare_runtime, parents=self.check_parents, rejected_waits=self.rejected_quota_waits
        )

    def new_state(self) -> LedgerState:
        """Returns an empty State with these settings."""
        return LedgerState(scales_min=self.scale_min, guarantees=self.guarantees, default_group=self.default_group)
