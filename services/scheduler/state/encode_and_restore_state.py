"""The scheduler's state as bytes: equal states give equal bytes, whatever the order of arrival."""

from sys import intern
from typing import Any

import msgspec

from services.scheduler.state.answered_schedule_explanations import LastAnswer
from services.scheduler.state.chosen_volumes import ChosenVolume
from services.scheduler.state.gang_records import GangRecord
from services.scheduler.state.gang_wait_history import GangWait
from services.scheduler.state.newest_desired_states import NewestWrite, NewestWrites
from services.scheduler.state.node_record import NodeRecord
from services.scheduler.state.planned_start_records import PlannedStart, UnitKey
from services.scheduler.state.pod_equivalence_class import PodClass, class_key
from services.scheduler.state.pod_scheduling_record import decoded
from services.scheduler.state.quota_view import QuotaSnapshot
from services.scheduler.state.reserve_pods import LastStatus, identity_owners_of
from services.scheduler.state.scheduler_state_fields import SchedulerStateFields
from services.scheduler.state.usage_records import MetricRecord, ReportRecord
from services.scheduler.state.watched_api_resources import OPERATING_PODS, RESERVATIONS
from shared.domain.reservation_owners import Identity
from shared.kube.node import Node
from shared.kube.pod import Pod


class _Kept(msgspec.Struct):
    positions: dict[str, int]
    scalars: list[int | str | dict[str, str] | None]
    pod_classes: list[tuple[Pod, Identity | None]]
    identities: dict[str, Identity]
    pods: msgspec.Raw
    nodes: list[tuple[str, Node, list[int]]]
    metrics: list[tuple[str, MetricRecord]]
    reports: dict[str, dict[str, ReportRecord]]
    reported: dict[str, dict[str, int]]
    objects: dict[str, dict[str, dict[str, Any]]]
    changed: list[int]
    chosen: dict[str, ChosenVolume]
    explanations: dict[str, dict[str, Any]]
    explanation_answers: dict[str, LastAnswer]
    reservation_statuses: dict[str, LastStatus]
    pod_group_statuses: dict[str, LastStatus]
    quota: QuotaSnapshot
    gangs: list[tuple[str, GangRecord]]
    gang_waits: list[GangWait]
    planned_starts: list[tuple[UnitKey, PlannedStart]] = []
    unselected: dict[str, int] = {}
    writes: dict[str, dict[str, NewestWrite]] = {}


_SCALARS = (
    "released_seq", "gateway_since", "config_map", "config_map_uid", "cycle", "cycle_saw", "cycle_ns", "config_source", "config_text",
    "config_digest", "config_seq", "config_settings", "refused_digest", "listed_seq", "clock_ns",
    "hold_released_seq", "config_map_fault",
)  # fmt: skip
_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(_Kept)


def encode(view: SchedulerStateFields) -> bytes:
    """Canonical MessagePack: names sorted, no row numbers."""
    view.read()
    view.forget_statuses_of_the_gone()
    keys = sorted(view.pod_classes)
    numbers = {view.pod_classes[key]: number for number, key in enumerate(keys)}
    kept = _Kept(
        positions=dict(sorted(view.positions.items())),
        scalars=[getattr(view, name) for name in _SCALARS],
        pod_classes=[(view.pod_classes[key].pod, view.pod_classes[key].identity) for key in keys],
        identities=dict(sorted(view.identities.items())),
        pods=msgspec.Raw(_encoder.encode([view.pods[uid].encode(numbers) for uid in sorted(view.pods)])),
        nodes=[(name, view.nodes[name].node, view.nodes[name].changed) for name in sorted(view.nodes)],
        metrics=[(name, view.metrics[name]) for name in sorted(view.metrics)],
        reports={name: dict(sorted(reports.items())) for name, reports in sorted(view.reports.items())},
        reported={name: dict(sorted(seqs.items())) for name, seqs in sorted(view.reported.items())},
        objects={resource: dict(sorted(held.items())) for resource, held in sorted(view.objects.items()) if held},
        changed=view.changed,
        chosen=dict(sorted(view.chosen.items())),
        explanations=dict(sorted(view.explanations.items())),
        explanation_answers=dict(sorted(view.explanation_answers.items())),
        reservation_statuses=dict(sorted(view.reservation_statuses.items())),
        pod_group_statuses=dict(sorted(view.pod_group_statuses.items())),
        quota=view.quota.image(),
        gangs=view.gangs.encode(),
        gang_waits=list(view.gang_waits),
        planned_starts=sorted(view.planned_starts.items()),
        unselected=dict(sorted(view.unselected.items())),
        writes={resource: dict(sorted(of.items())) for resource, of in sorted(view.writes.of.items()) if of},
    )
    return _encoder.encode(kept)


def restore(view: SchedulerStateFields, data: bytes) -> None:
    """Restores a new view from the bytes of `encode`."""
    kept = _decoder.decode(data)
    view.positions = dict(kept.positions)
    for name, value in zip(_SCALARS, kept.scalars, strict=True):
        setattr(view, name, value)
    pod_classes = [PodClass(class_key(pod), pod, identity) for pod, identity in kept.pod_classes]
    view.pod_classes = {pod_class.key: pod_class for pod_class in pod_classes}
    view.pods = {pod_record.uid: pod_record for pod_record in decoded(kept.pods, pod_classes)}
    shared: dict[bytes, bytes] = {}
    for pod_record in view.pods.values():
        pod_record.node, pod_record.placed_node = intern(pod_record.node), intern(pod_record.placed_node)
        pod_record.controllers = shared.setdefault(pod_record.controllers, pod_record.controllers)
        for pod_class in (pod_record.pod_class, pod_record.load_class):
            if pod_class is not None:
                pod_class.pods += 1
    view.nodes = {name: NodeRecord(node, changed) for name, node, changed in kept.nodes}
    view.objects = kept.objects
    view.changed = kept.changed
    view.chosen, view.unselected = kept.chosen, kept.unselected
    view.writes = NewestWrites(kept.writes)
    view.identities = kept.identities
    view.identity_owners = {
        name: owners
        for name, body in view.objects.get(RESERVATIONS, {}).items()
        if (owners := identity_owners_of(body))
    }
    view.identity_owners |= {
        f"pod/{uid}": owners
        for uid, body in view.objects.get(OPERATING_PODS, {}).items()
        if (owners := identity_owners_of(body))
    }
    view.reservation_statuses, view.pod_group_statuses = kept.reservation_statuses, kept.pod_group_statuses
    view.explanations, view.explanation_answers = kept.explanations, kept.explanation_answers
    view.reports, view.reported = kept.reports, kept.reported
    view.quota.restore(kept.quota)
    view.gangs.restore(kept.gangs)
    view.gang_waits.extend(kept.gang_waits)
    view.planned_starts = dict(kept.planned_starts)
    view.metrics = dict(kept.metrics)
