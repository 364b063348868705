"""Decisions about the configuration and about nodes: overcommitted amounts, and the desired state of API objects.

Pure: State, settings and `now` in, events out. An event is drafted only if it differs from the newest one of its kind.
"""

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from services.slo_controller.config.colocation_strategy import DEFAULTS
from services.slo_controller.config.node_metric_spec import node_metric_spec
from services.slo_controller.config.node_slo_spec import node_slo_spec
from services.slo_controller.config.slo_configmap import ActiveConfig, read
from services.slo_controller.implausible_reports import decide_ignored_reports
from services.slo_controller.node_topology.topology_objects import decide_topology, topology_deletion
from services.slo_controller.overcommit.batch_and_mid_amounts_written_to_node import NORMALIZATION_RATIO
from services.slo_controller.overcommit.calculate import ACTIVE, DEGRADED, OFF, NodeCalculation, calculate
from services.slo_controller.overcommit.change_threshold import any_changed
from services.slo_controller.overcommit.cpu_normalization import ratio_changed
from services.slo_controller.overcommit.decision_event import OVERCOMMITTED, overcommit_event
from services.slo_controller.overcommit.device_resources import NO_DEVICES
from services.slo_controller.overcommit.report_expiry import expires_ns
from services.slo_controller.overcommit.resource_amplification import AMPLIFICATION_RATIO
from services.slo_controller.service_manifest import CONFIG_MAP
from services.slo_controller.settings import SloSettings
from services.slo_controller.state.slo_state import (
    GONE,
    NODES,
    SloState,
)
from shared.admission.slo_config.document_validation import COLOCATION
from shared.events import Draft
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, ConfigRejected
from shared.events.slo import NodeOvercommitted
from shared.kube.instants import SECOND
from shared.kube.json_text import json_value
from shared.kube.quantity import NANO, nanos
from shared.kube.resource_names import NODE_METRICS, NODE_SLOS

AMOUNTS, METADATA, SPEC = "batch-and-mid", "colocation", "collect-policy"
"""The field groups that this context owns: of a node's status, of its metadata, and of a NodeMetric."""


def decide_config(state: SloState) -> list[Draft]:
    """Applies the newest ConfigMap key by key; without one, the defaults."""
    data = state.config_data or {}
    digest = _digest(data)
    if state.config_digest and digest == state.rejected_digest:
        return []
    parsed = read(data, state.texts)
    drafts = []
    # A repaired document is recorded, even where its text equals the last valid one: it ends the rejection.
    is_mended = bool(state.rejected_digest) and not parsed.problems
    if not state.config_digest or parsed.texts != state.texts or is_mended:
        text = _canonical(parsed.texts)
        drafts.append(
            Draft(ConfigApplied(source=f"ConfigMap {CONFIG_MAP}", digest=sha256(text).hexdigest(), text=text.decode()))
        )
    drafts += [
        Draft(ConfigRejected(source=f"ConfigMap {CONFIG_MAP}", digest=digest, path=p.place, reason=p.fault))
        for p in parsed.problems
    ]
    return drafts


def decide_nodes(
    state: SloState, config: ActiveConfig, names: Iterable[str], settings: SloSettings, now_ns: int
) -> list[Draft]:
    """Decides nodes: those that changed, and those whose reports have expired."""
    drafts: list[Draft] = []
    for name in names:
        if name in state.nodes:
            drafts += decide_node(state, config, name, settings, now_ns)
        else:
            drafts += _drafts_of_deleted_node(state, name, now_ns, settings)
        drafts += decide_ignored_reports(state, name, now_ns)
    return drafts


def decide_node(state: SloState, config: ActiveConfig, name: str, settings: SloSettings, now_ns: int) -> list[Draft]:
    """Decides one existing node."""
    drafts: list[Draft] = []
    if settings.node_slos:
        drafts += _node_slo(state, config, name)
    if settings.node_metrics:
        drafts += _node_metric(state, config, name)
    before = _last_decision(state, name)
    # Without a configuration, another controller may own the amounts on the node, so they stay as they are.
    is_configured = before is not None or COLOCATION in state.texts or _has_ratios(state, config, name)
    # A node whose kubelet has not reported capacity and allocatable yet is not written to.
    is_written = is_configured and state.node_resources(name).is_reported
    found = calculate(state, config, name, settings, now_ns) if is_written else None
    if settings.topologies:
        drafts += decide_topology(state, name, found)
    if found is None:
        return drafts
    why = _reason(state, name, before, found, now_ns)
    if not why:
        return drafts
    after = overcommit_event(state.nodes[name], found, before, why, now_ns)
    drafts.append(Draft(after))
    patch = {"capacity": after.amounts, "allocatable": after.amounts}
    if before is None or before.amounts != after.amounts:
        drafts.append(
            Draft(
                FieldsDesired(resource=NODES, name=name, fields=AMOUNTS, patch={"status": patch}, subresource="status")
            )
        )
    metadata: dict[str, Any] = {"annotations": after.annotations} | ({"labels": after.labels} if after.labels else {})
    if before is None or (before.annotations, before.labels) != (after.annotations, after.labels):
        drafts.append(Draft(FieldsDesired(resource=NODES, name=name, fields=METADATA, patch={"metadata": metadata})))
    return drafts


def nodes_with_expired_reports(state: SloState, config: ActiveConfig, now_ns: int) -> list[str]:
    """Returns the nodes that are still overcommitted by a report that has expired."""
    names = []
    for name, decided in state.decided.items():
        node = state.nodes.get(name)
        if node is None or (decided.batch_cpu is None and decided.mid_cpu is None):
            continue
        if not state.node_resources(name).is_reported:
            continue
        strategy = config.strategy(node.metadata)
        report, _ = state.usage_report(name)
        if expires_ns(report, strategy) < now_ns and not (state.frozen and report.has_node):
            names.append(name)
    return names


def _reason(state: SloState, name: str, before: NodeOvercommitted | None, found: NodeCalculation, now_ns: int) -> str:
    """Returns the reason for a new decision about the node's amounts; empty when the last one stays."""
    new, devices = found.extended_resources.amounts, found.devices
    if before is None:
        allocatable = state.nodes[name].status.allocatable or {}
        has_amounts = any(size is not None for size in (*new.values(), *devices.amounts.values()))
        is_present = any(each in allocatable for each in (*new, *devices.amounts))
        return "first" if has_amounts or is_present or _annotations_changed(found, {}) else ""
    old, strategy = before.amounts, found.strategy
    if found.mode != ACTIVE and any(old.get(each) is not None and new[each] is None for each in OVERCOMMITTED):
        return found.mode
    amounts_before = {each: nanos(text) for each in OVERCOMMITTED if (text := old.get(each)) is not None}
    amounts = {each: size * NANO for each in OVERCOMMITTED if (size := new[each]) is not None}
    if found.mode == DEGRADED and (amounts != amounts_before or _has_terms(before) != _has_terms(found)):
        return DEGRADED
    if any_changed(amounts_before, amounts, OVERCOMMITTED, strategy):
        return "changed"
    if _falls_for_unreported(found, amounts_before, amounts):
        return "changed"
    if devices.amounts is not NO_DEVICES.amounts or any(old.get(each) is not None for each in devices.amounts):
        written = {each: nanos(text) for each, text in old.items() if text is not None}
        new_devices = {each: nanos(text) for each, text in devices.amounts.items() if text is not None}
        if any_changed(written, new_devices, devices.amounts, replace(strategy, koordstream=None)):
            return "changed"
        if any(before.labels.get(label) != text for label, text in devices.labels.items()):
            return "changed"
    if _annotations_changed(found, before.annotations):
        return "changed"
    seconds = strategy.update_time_threshold_seconds
    update_after_ns = (DEFAULTS.update_time_threshold_seconds or 0 if seconds is None else seconds) * SECOND
    if found.mode != OFF and now_ns - before.decided_ns > update_after_ns and amounts != amounts_before:
        return "time"
    return ""


def _has_terms(of: NodeOvercommitted | NodeCalculation) -> tuple[bool, bool]:
    """Reports whether batch and mid resources follow from a report; without one they are kept."""
    if isinstance(of, NodeOvercommitted):
        return of.batch_cpu is not None, of.mid_cpu is not None
    return of.batch is not None, of.mid is not None


def _falls_for_unreported(found: NodeCalculation, old: Mapping[str, int], new: Mapping[str, int]) -> bool:
    """Reports whether an amount falls for pods that came after the report: what they request is overcommitted twice."""
    if found.batch is None or not any(found.batch.terms.unreported):
        return False
    return any(size < old.get(name, 0) for name, size in new.items())


def _annotations_changed(found: NodeCalculation, written: Mapping[str, str | None]) -> bool:
    if found.ratio is not None and ratio_changed(written.get(NORMALIZATION_RATIO), found.ratio):
        return True
    return found.amplification != written.get(AMPLIFICATION_RATIO)


def _has_ratios(state: SloState, config: ActiveConfig, name: str) -> bool:
    """Reports whether normalization or amplification is configured, or the node has devices."""
    return name in state.devices or any(
        each.enable or each.node_configs for each in (config.documents.normalization, config.documents.amplification)
    )


def _last_decision(state: SloState, name: str) -> NodeOvercommitted | None:
    """Returns the newest decision about the existing node; a decision about a deleted node of its name does not count."""
    if state.desired(NODES, name, AMOUNTS) is None and state.desired(NODES, name, METADATA) is None:
        return None
    return state.decided.get(name)


def _node_slo(state: SloState, config: ActiveConfig, name: str) -> list[Draft]:
    spec = node_slo_spec(config.documents, state.nodes[name].metadata)
    desired = state.desired(NODE_SLOS, name)
    if desired is not None:
        if desired.get("spec") == spec:
            return []
    elif state.node_slos.get(name) == spec:
        return []
    return [Draft(ObjectDesired(resource=NODE_SLOS, name=name, body={"spec": spec}))]


def _node_metric(state: SloState, config: ActiveConfig, name: str) -> list[Draft]:
    observed = state.metric_specs.get(name)
    if observed is None:
        return []  # the gateway creates it with the node's first report
    spec = node_metric_spec(config.documents.colocation, state.nodes[name].metadata)
    desired = state.desired(NODE_METRICS, name, SPEC)
    if desired is None and COLOCATION not in state.texts:
        return []  # an empty spec means the defaults as well
    if desired is not None:
        if desired.get("spec") == spec:
            return []
    elif json_value(observed) == spec:
        return []
    return [Draft(FieldsDesired(resource=NODE_METRICS, name=name, fields=SPEC, patch={"spec": spec}))]


def _drafts_of_deleted_node(state: SloState, name: str, now_ns: int, settings: SloSettings) -> list[Draft]:
    """Deletes the NodeSLO and the NodeMetric of a deleted node, and its topology if this controller created it.

    Source: spec/slo-controller.md 1.4, 7.
    """
    drafts = []
    if settings.node_slos and name in state.node_slos:
        drafts.append(Draft(ObjectDesired(resource=NODE_SLOS, name=name, body=None)))
    if settings.node_metrics and name in state.metric_specs:
        drafts.append(Draft(ObjectDesired(resource=NODE_METRICS, name=name, body=None)))
    if settings.topologies:
        drafts += topology_deletion(state, name)
    if name in state.decided:
        drafts.append(Draft(NodeOvercommitted(node=name, report_ns=0, decided_ns=now_ns, why=GONE)))
    return drafts


def _canonical(data: dict[str, str]) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def _digest(data: dict[str, str]) -> str:
    return sha256(_canonical(data)).hexdigest()
