"""What is said of nodes: the configuration in force, what each node sells again, and what the API must say then.

Pure: State, settings and `now` in, events out. Only what differs from what we said before is said.
"""

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import replace

from services.slo_controller.config.colocation_strategy import DEFAULTS
from services.slo_controller.config.node_metric_spec import node_metric_spec
from services.slo_controller.config.node_slo_spec import node_slo_spec
from services.slo_controller.config.slo_configmap import InForce, read
from services.slo_controller.node_topology.topology_objects import decide_topology, withdrawn
from services.slo_controller.overcommit.calculate import OFF, SELLING, Pass, calculate
from services.slo_controller.overcommit.change_threshold import expires_ns, moved
from services.slo_controller.overcommit.cpu_normalization import AMPLIFICATION_RATIO, normalization_moved
from services.slo_controller.overcommit.decision_event import SOLD, outcome_of
from services.slo_controller.overcommit.device_resources import NO_DEVICES
from services.slo_controller.overcommit.node_patch import NORMALIZATION_RATIO
from services.slo_controller.settings import SloSettings
from services.slo_controller.state.slo_state import (
    CONFIG_MAP,
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
from shared.kube.quantity import NANO, nanos
from shared.kube.resource_names import NODE_METRICS, NODE_SLOS

AMOUNTS, METADATA, SPEC = "batch-and-mid", "colocation", "collect-policy"
"""The field groups that this context owns: of a node's status and metadata, of a NodeMetric."""


def decide_config(state: SloState) -> list[Draft]:
    """Take over the ConfigMap as it was seen last, key by key; without one the defaults."""
    data = state.config_data or {}
    digest = _digest(data)
    if state.config and digest == state.refused:
        return []
    reading = read(data, state.texts)
    drafts = []
    is_mended = bool(state.refused) and not reading.problems  # said, even where the texts are the last good ones again
    if not state.config or reading.texts != state.texts or is_mended:
        text = _canonical(reading.texts)
        drafts.append(
            Draft(ConfigApplied(source=f"ConfigMap {CONFIG_MAP}", digest=sha256(text).hexdigest(), text=text.decode()))
        )
    drafts += [
        Draft(ConfigRejected(source=f"ConfigMap {CONFIG_MAP}", digest=digest, path=f"{p.key}: {p.path}", reason=str(p)))
        for p in reading.problems
    ]
    return drafts


def decide_nodes(
    state: SloState, config: InForce, names: Iterable[str], settings: SloSettings, now_ns: int
) -> list[Draft]:
    """What is said of these nodes: those that changed, and those whose reports have become too old."""
    drafts: list[Draft] = []
    for name in names:
        if name in state.nodes:
            drafts += decide_node(state, config, name, settings, now_ns)
        else:
            drafts += _gone(state, name, now_ns, settings)
    return drafts


def decide_node(state: SloState, config: InForce, name: str, settings: SloSettings, now_ns: int) -> list[Draft]:
    """What is said of one node that is there."""
    drafts: list[Draft] = []
    if settings.node_slos:
        drafts += _node_slo(state, config, name)
    if settings.node_metrics:
        drafts += _node_metric(state, config, name)
    before = _decided(state, name)
    # Without a configuration, amounts that others wrote to the node are theirs. A node without capacity or allocatable is not written to.
    asked = before is not None or COLOCATION in state.texts or _has_ratios(state, config, name)
    is_written = asked and state.machine(name).is_reported
    found = calculate(state, config, name, settings, now_ns) if is_written else None
    if settings.topologies:
        drafts += decide_topology(state, name, found)
    if found is None:
        return drafts
    why = _why(state, name, before, found, now_ns)
    if not why:
        return drafts
    after = outcome_of(state.nodes[name], found, before, why, now_ns)
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


def expired(state: SloState, config: InForce, now_ns: int) -> list[str]:
    """Nodes that still sell what rests on a report that has become too old, and nodes with differences that wait for time to pass."""
    names = []
    for name, decided in state.decided.items():
        node = state.nodes.get(name)
        if node is None or (decided.batch_cpu is None and decided.mid_cpu is None):
            continue
        if not state.machine(name).is_reported:
            continue
        strategy = config.strategy(node.metadata)
        measured, _ = state.measured(name)
        if expires_ns(measured, strategy) < now_ns:
            names.append(name)
    return names


def _why(state: SloState, name: str, before: NodeOvercommitted | None, found: Pass, now_ns: int) -> str:
    """Why something is said of the node's amounts now; empty when nothing is."""
    new, devices = found.prepared.amounts, found.devices
    if before is None:
        allocatable = state.nodes[name].status.allocatable or {}
        news = any(size is not None for size in (*new.values(), *devices.amounts.values()))
        there = any(each in allocatable for each in (*new, *devices.amounts))
        return "first" if news or there or _annotations_moved(found, {}) else ""
    old, strategy = before.amounts, found.strategy
    if found.doing != SELLING and any(old.get(each) is not None and new[each] is None for each in SOLD):
        return found.doing
    amounts_before = {each: nanos(text) for each in SOLD if (text := old.get(each)) is not None}
    amounts = {each: size * NANO for each in SOLD if (size := new[each]) is not None}
    if moved(amounts_before, amounts, SOLD, strategy):
        return "moved"
    if devices.amounts is not NO_DEVICES.amounts or any(old.get(each) is not None for each in devices.amounts):
        stated = {each: nanos(text) for each, text in old.items() if text is not None}
        wanted = {each: nanos(text) for each, text in devices.amounts.items() if text is not None}
        if moved(stated, wanted, devices.amounts, replace(strategy, koordstream=None)):
            return "moved"
        if any(before.labels.get(label) != text for label, text in devices.labels.items()):
            return "moved"
    if _annotations_moved(found, before.annotations):
        return "moved"
    seconds = strategy.update_time_threshold_seconds
    patience_ns = (DEFAULTS.update_time_threshold_seconds or 0 if seconds is None else seconds) * SECOND
    if found.doing != OFF and now_ns - before.decided_ns > patience_ns and amounts != amounts_before:
        return "time"
    return ""


def _annotations_moved(found: Pass, stated: Mapping[str, str | None]) -> bool:
    if found.ratio is not None and normalization_moved(stated.get(NORMALIZATION_RATIO), found.ratio):
        return True
    return found.amplification != stated.get(AMPLIFICATION_RATIO)


def _has_ratios(state: SloState, config: InForce, name: str) -> bool:
    """Whether something but over-commitment is configured, or the node has devices."""
    return name in state.devices or any(
        each.enable or each.node_configs for each in (config.documents.normalization, config.documents.amplification)
    )


def _decided(state: SloState, name: str) -> NodeOvercommitted | None:
    """What we said of the node that is there: another one of its name may have gone since."""
    if state.says(NODES, name, AMOUNTS) is None and state.says(NODES, name, METADATA) is None:
        return None
    return state.decided.get(name)


def _node_slo(state: SloState, config: InForce, name: str) -> list[Draft]:
    spec = node_slo_spec(config.documents, state.nodes[name].metadata)
    said = state.says(NODE_SLOS, name)
    if said is not None:
        if said.get("spec") == spec:
            return []
    elif state.slos.get(name) == spec:
        return []
    return [Draft(ObjectDesired(resource=NODE_SLOS, name=name, body={"spec": spec}))]


def _node_metric(state: SloState, config: InForce, name: str) -> list[Draft]:
    there = state.metric_specs.get(name)
    if there is None:
        return []  # made with the node's first report
    spec = node_metric_spec(config.documents.colocation, state.nodes[name].metadata)
    said = state.says(NODE_METRICS, name, SPEC)
    if said is None and COLOCATION not in state.texts:
        return []  # the defaults are asked for by an empty spec as well
    if said is not None:
        if said.get("spec") == spec:
            return []
    elif msgspec.json.decode(msgspec.json.encode(there)) == spec:
        return []
    return [Draft(FieldsDesired(resource=NODE_METRICS, name=name, fields=SPEC, patch={"spec": spec}))]


def _gone(state: SloState, name: str, now_ns: int, settings: SloSettings) -> list[Draft]:
    """A node that is not there has neither NodeSLO nor NodeMetric, whoever made them, and no topology of ours. Source: spec/slo-controller.md
    1.4, 7.
    """
    drafts = []
    if settings.node_slos and name in state.slos:
        drafts.append(Draft(ObjectDesired(resource=NODE_SLOS, name=name, body=None)))
    if settings.node_metrics and name in state.metric_specs:
        drafts.append(Draft(ObjectDesired(resource=NODE_METRICS, name=name, body=None)))
    if settings.topologies:
        drafts += withdrawn(state, name)
    if name in state.decided:
        drafts.append(Draft(NodeOvercommitted(node=name, report_ns=0, decided_ns=now_ns, why=GONE)))
    return drafts


def _canonical(data: dict[str, str]) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def _digest(data: dict[str, str]) -> str:
    return sha256(_canonical(data)).hexdigest()
