"""What the quota ledger reads from the environment."""

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
    scale_min: Annotated[bool, Meta(description="minima shrink where they exceed what there is")] = True
    guarantees: Annotated[bool, Meta(description="what is used below a quota is guaranteed to it; nobody lends")] = (
        False
    )
    check_quotas: Annotated[bool, Meta(description="a quota that breaks a rule keeps its last good declaration")] = True
    keys_may_differ: Annotated[bool, Meta(description="a child may count fewer resources than its parent")] = False
    revoke: Annotated[bool, Meta(description="pods of over-used quotas are evicted")] = False
    revoke_after_s: Annotated[float, Meta(ge=0, description="over-use tolerated before that")] = 120
    compare_runtime: Annotated[bool, Meta(description="pods are held to the runtime quota; else to max")] = True
    check_parents: Annotated[bool, Meta(description="every ancestor must have room too")] = False
    poll_interval_s: Annotated[float, Meta(gt=0, description="seconds between two looks at over-use and statuses")] = (
        1.0
    )
    listen: Annotated[str, Meta(description="host:port, with TLS, for the views below /apis/v1; empty: none")] = ""
    tls_cert: Annotated[str, Meta(description="certificate chain of that port, PEM")] = ""
    tls_key: Annotated[str, Meta(description="its key, PEM")] = ""
    insecure_listen: Annotated[str, Meta(description="the same without TLS; empty: none")] = ""

    def text(self) -> str:
        """All of it, for the log; `of_text` reads it."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def of_text(cls, text: str) -> Self:
        """What the log says; the defaults where it says nothing, or what a later release has added."""
        return msgspec.json.decode(text or "{}", type=cls)

    def admission(self) -> AdmissionRules:
        """What a pod's request is compared with."""
        return AdmissionRules(runtime=self.compare_runtime, parents=self.check_parents)

    def new_state(self) -> LedgerState:
        """An empty ledger that shares by these settings."""
        return LedgerState(scales_min=self.scale_min, guarantees=self.guarantees, default_group=self.default_group)
