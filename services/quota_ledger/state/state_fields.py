"""What the ledger knows: the fields of its fold. `known_quotas.py` and `known_pods.py` fold their halves, `state.py` is both."""

from typing import NamedTuple

from services.quota_ledger.accounting.projection import LedgerProjection
from services.quota_ledger.state.pod_record import Placement, PodRecord
from services.quota_ledger.state.profile_resources import ProfileView
from services.quota_ledger.state.published_status import PublishedStatus
from shared.domain.amounts import Amounts
from shared.kube.elastic_quota import DeclaredQuota


class ObjectError(NamedTuple):
    """Why an ElasticQuota's newest object is not followed."""

    name: str
    code: str
    reason: str


class StateFields:
    """A fold over `cluster`, `scheduling` and `quota`.

    Attributes:
        objects: key of an ElasticQuota -> what it last declared that was good in itself; faults: what is wrong with it since.
        says: key of an ElasticQuota -> which numbers its object has that are not zero, whoever wrote them.
        seen, placed: pods by uid.
        books: what the own log says; published: what it has told the objects.
        profiles: ElasticQuotaProfiles, and what their nodes come to.
        epoch, cycle: of the scheduler's newest WriterStarted and CycleDecided: an ask of an earlier one, or of a cycle that is
            decided, is over.
        due: uids of pods of which the books say something else than what is wanted.
        quotas_due: names of quotas that may be declared otherwise than the books have them.
        structure_changes, structure_judged: how often quotas or their objects have changed in this process, and at which of these
            there was nothing to record.
    """

    def __init__(self, *, scales_min: bool = True, guarantees: bool = False, default_group: bool = True) -> None:
        self.positions: dict[str, int] = {}
        self.projection = LedgerProjection(scales_min=scales_min, guarantees=guarantees, default_group=default_group)
        self.published = PublishedStatus()
        self.profiles = ProfileView()
        self.objects: dict[str, DeclaredQuota] = {}
        self.faults: dict[str, ObjectError] = {}
        self.says: dict[str, tuple[str, ...]] = {}
        self.nodes: dict[str, Amounts] = {}
        self.seen: dict[str, PodRecord] = {}
        self.placed: dict[str, Placement] = {}
        self.cycle_saw = 0
        self.epoch = 0
        self.cycle = 0
        self.due: dict[str, None] = {}
        self.quotas_due: dict[str, None] = {}
        self._asked: dict[str, None] = {}  # pods whose charge rests on an ask of a cycle that is not over
        self._of_nodes: Amounts | None = None
        self._roots: list[tuple[str, DeclaredQuota]] | None = None
        self.structure_changes = 0
        self.structure_judged = -1
        self._of_label: dict[str, dict[str, None]] = {}
        self._in_namespace: dict[str, dict[str, None]] = {}
        self._keys_of: dict[str, dict[str, None]] = {}
