"""The fields of the ledger's State: `fold_pods.py` and `fold_quotas.py` fold halves, `ledger_state.py` joins them."""

from typing import NamedTuple

import msgspec

from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.pods.pod_table import PodTable
from services.quota_ledger.state.open_evictions import OpenEvictions
from services.quota_ledger.state.profile_resources import ProfileResources
from services.quota_ledger.state.published_status import PublishedStatus
from shared.domain.amounts import Amounts
from shared.domain.gang import GangSettings
from shared.kube.elastic_quota import DeclaredQuota


class ObjectError(NamedTuple):
    """The reason why an ElasticQuota's newest object is not followed.

    Attributes:
        namespaces: those whose pods it would have, where no valid declaration came before.
    """

    name: str
    code: str
    reason: str
    namespaces: tuple[str, ...] = ()


class QuotaObject(NamedTuple):
    """An ElasticQuota as the API has it, valid or not.

    Attributes:
        created_ns: its creation, since the epoch; 0 where the object does not have it.
    """

    name: str
    uid: str
    created_ns: int


class Placement(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The scheduler's newest placement of a pod, and whether its binding was rejected.

    Attributes:
        seq, cycle: of the newest PodPlaced or PlacementReserved, or of the CycleDecided that announces it.
        rejected_seq: of the newest PodPlaced whose outcome was not a binding, or of the newest PlacementReleased.
        saw: the position in `cluster` that the cycle of that PodPlaced had read.
    """

    seq: int = 0
    cycle: int = 0
    rejected_seq: int = 0
    saw: int = 0


class StateFields:
    """A fold over `cluster`, `scheduling` and `quota`.

    Attributes:
        pods: all pods by uid, as `cluster` shows them and as they are attached.
        placements: the scheduler's, by uid.
        projection: the fold of the ledger's own log; published: the numbers that it last wrote to objects.
        profiles: ElasticQuotaProfiles and the resources of their nodes.
        quota_objects: key of an ElasticQuota, `resource/namespace/name` -> its identity. Of several of one name the
            oldest has the name; the others are duplicates.
        objects: key of an ElasticQuota -> its newest declaration that is valid in itself; object_errors: key -> error
            of an object that came after that.
        present_numbers: key of an ElasticQuota -> the numbers on its object that are not zero, from any writer.
        pod_groups: id of a gang -> the settings of its PodGroup; None where its minimum is unreadable.
        epoch, cycle: of the scheduler's newest WriterStarted and CycleDecided. A request of an earlier epoch, or of a
            cycle that is decided, is late.
        evictions: the ledger's eviction requests without an outcome.
        pods_to_update: uids of pods whose attachment or charge differs from the desired one.
        quotas_to_update: names of quotas whose declaration may differ from the recorded one.
        structure_changes, structure_decided_at: number of changes to quotas and their objects in this process, and the
            number at which there was last nothing to record.
    """

    def __init__(self, *, scales_min: bool = True, guarantees: bool = False, default_group: bool = True) -> None:
        self.positions: dict[str, int] = {}
        self.pods = PodTable()
        self.projection = LedgerProjection(
            scales_min=scales_min, guarantees=guarantees, default_group=default_group, table=self.pods
        )
        self.published = PublishedStatus()
        self.profiles = ProfileResources()
        self.quota_objects: dict[str, QuotaObject] = {}
        self.objects: dict[str, DeclaredQuota] = {}
        self.object_errors: dict[str, ObjectError] = {}
        self.present_numbers: dict[str, tuple[str, ...]] = {}
        self.pod_groups: dict[str, GangSettings | None] = {}
        self.nodes: dict[str, Amounts] = {}
        self.placements: dict[str, Placement] = {}
        self.evictions = OpenEvictions()
        self.cycle_saw = 0
        self.epoch = 0
        self.cycle = 0
        self.pods_to_update: dict[str, None] = {}
        self.quotas_to_update: dict[str, None] = {}
        self._charged_for_open_cycle: dict[
            str, None
        ] = {}  # pods whose charge ends with the cycle unless it places them
        self._node_total: Amounts | None = None
        self._roots: list[tuple[str, DeclaredQuota]] | None = None
        # With the structure_changes they follow: namespace -> rejected quota of its pods, and the reason.
        self._rejected_namespaces: tuple[int, dict[str, tuple[str, str]]] | None = None
        self.structure_changes = 0
        self.structure_decided_at = -1
        self._keys_of: dict[str, dict[str, None]] = {}
