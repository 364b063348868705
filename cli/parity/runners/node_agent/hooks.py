"""Runs hooks: conversions, batch resources, CPU normalisation, group identity, core scheduling."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from services.node_agent.cgroup import cpu_conversions
from services.node_agent.runtime_hooks import batch_resource, cpu_normalization
from services.node_agent.runtime_hooks.batch_resource import BatchRule
from services.node_agent.runtime_hooks.core_sched_rule import CoreRule
from services.node_agent.runtime_hooks.cpu_normalization import BadRatio, Normalization
from services.node_agent.runtime_hooks.group_identity import BadCpuQos, Identities
from services.node_agent.states_informer.annotations import resource_status
from shared.domain.qos import QoS, raw_qos
from shared.kube.pod import Pod
from shared.kube.slo_config import ResourceQos, ResourceThreshold


def conversions(given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs op `convert`."""
    return {
        "milliToSharesQuota": [
            [cpu_conversions.shares(milli), cpu_conversions.quota(milli)] for milli in given["milliCPU"]
        ],
        "sharesToWeight": [_or_none(cpu_conversions.weight, shares) for shares in given["shares"]],
        "weightToShares": [_or_none(cpu_conversions.shares_of_weight, weight) for weight in given["weights"]],
    }


def _or_none(function: Callable[[int], int], of: int) -> int | None:
    try:
        return function(of)
    except cpu_conversions.OutOfRange:
        return None


def batch_resources(given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs op `batchResource`."""
    rule, events = BatchRule(), []
    for event in given["events"]:
        before = rule
        try:
            if event["type"] == "nodeSLO":
                rule = rule.with_threshold(
                    msgspec.convert(event["resourceUsedThresholdWithBE"], ResourceThreshold | None)
                )
            else:
                ratio = cpu_normalization.parse(event["cpuNormalizationRatio"])
                rule = rule._replace(ratio=cpu_normalization.NONE if ratio is None else ratio)
        except BadRatio:
            events.append({"error": True, "updated": False})
            continue
        events.append({"updated": rule != before})
    return {
        "events": events,
        "cfsQuotaEnabled": rule.quota is not False,
        "scaleRatio": -1 if rule.ratio is None or rule.quota is False else rule.ratio,
        "pods": [_batch_pod(msgspec.convert(pod, Pod), rule) for pod in given["pods"]],
    }


def _batch_pod(pod: Pod, rule: BatchRule) -> dict[str, Any]:
    found = batch_resource.batch_requests(pod) if batch_resource.applies(pod) else None
    answer = {}
    for container in pod.spec.containers:
        batch = (found or {}).get(container.name)
        answer[container.name] = {} if batch is None else _values(batch_resource.container_values(batch, rule))
    return {"pod": {} if found is None else _values(batch_resource.pod_values(found, rule)), "containers": answer}


def _values(values: batch_resource.Values) -> dict[str, int]:
    return {"cpuShares": values.shares, "cfsQuota": values.quota_us, "memoryLimit": values.memory_limit}


def normalization(given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs op `cpuNormalization`."""
    rule, events = Normalization(), []
    for event in given["events"]:
        before, error = rule, False
        try:
            rule = rule.with_annotation(event["cpuNormalizationRatio"])
        except BadRatio:
            error = True
        answer = {"enabled": rule.enabled, "ratio": rule.ratio, "updated": rule != before}
        events.append({**answer, "error": True} if error else answer)
    pods: Sequence[Pod] = [msgspec.convert(pod, Pod) for pod in given["pods"]]
    return {"events": events, "pods": [_normalized(pod, rule) for pod in pods]}


def _normalized(pod: Pod, rule: Normalization) -> dict[str, Any]:
    concerned = cpu_normalization.applies(pod)
    return {
        "reconcilerQOS": _reconciled_as(pod),
        "podQuota": cpu_normalization.pod_quota(pod, rule) if concerned else None,
        "containerQuota": {
            container.name: cpu_normalization.container_quota(container, rule) if concerned else None
            for container in pod.spec.containers
        },
    }


def _reconciled_as(pod: Pod) -> str:
    """Returns a pod's class in upstream's reconciler: one without a class, but with CPUs of its own, is LSR."""
    qos = raw_qos(pod)
    return QoS.LSR.value if qos is QoS.NONE and resource_status(pod).cpuset else qos.value


def identities(given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs op `groupIdentity`."""
    rule = Identities.of(_strategy(given))
    sysctl = given["sysctlGroupIdentity"]
    writes = bool(rule.enabled) or sysctl != 0
    pods = [msgspec.convert(pod, Pod) for pod in given["pods"]]
    folders = {qos: rule.of_folder(qos) for qos in ("Guaranteed", "Burstable", "BestEffort")}
    written: dict[str, int] = {f"qos/{qos}": bvt for qos, bvt in folders.items()}
    for number, pod in enumerate(pods):
        own = rule.of_class(raw_qos(pod))
        bvt = rule.of_kube(pod.status.qos_class) if own is None else own
        written |= {f"pod/{pod.metadata.uid}": bvt, f"container/c{number}": bvt}
    if dangling := given.get("danglingPod"):
        bvt = folders[dangling["kubeQOS"]]
        written |= {f"pod/{dangling['uid']}": bvt, f"container/{dangling['container']}": bvt}
    return {
        "ruleUpdated": True,
        "ruleUpdatedAgain": False,
        "ruleEnabled": bool(rule.enabled),
        "kubeQOS": folders if writes else dict.fromkeys(folders),
        "pods": [_bvt(rule, pod) if writes else {"bvt": None} for pod in pods],
        "hostApps": [(rule.of_class(QoS(qos)) or 0) if writes else None for qos in given["hostAppQOS"]],
        "callback": written if writes else {},
        "sysctlAfterCallback": 1 if rule.enabled and sysctl is not None else sysctl,
    }


def _bvt(rule: Identities, pod: Pod) -> dict[str, Any]:
    try:
        return {"bvt": rule.of_pod(pod)}
    except BadCpuQos:
        return {"error": True}


def core_sched(given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs op `coreSched`."""
    rule = CoreRule.of(_strategy(given))
    groups = [rule.group(pod["uid"], pod.get("labels") or {}, pod["kubeQOS"]) for pod in given["pods"]]
    return {
        "ruleUpdated": True,
        "ruleEnabled": rule.enabled,
        "cpuIdle": rule.idle(),
        "pods": [{"enabled": group is not None, "group": group} for group in groups],
    }


def _strategy(given: Mapping[str, Any]) -> ResourceQos:
    return msgspec.convert(given["resourceQOSStrategy"], ResourceQos)
