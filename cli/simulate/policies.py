"""The policies that `koord simulate --policy` knows by name; any other is a KubeSchedulerConfiguration file."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.state.fold_cluster import CONFIG_KEY
from shared.domain.config_map_text import config_map_text
from shared.errors import KoordError
from shared.kube.device import GPU_MODEL

GPU_MILLI = "alibabacloud.com/gpu-milli"
"""GPUs as a plain resource: 1000 is one whole GPU. The name is that of the openb trace."""

_SCORED = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: {strategy}
        resources:
        - {{name: cpu, weight: 1}}
        - {{name: memory, weight: 1}}
        - {{name: {gpu}, weight: 2}}
  plugins:
    multiPoint:
      disabled: [{{name: NodeResourcesBalancedAllocation}}]
"""

POLICIES = {
    "default": DEFAULT_PROFILE,
    "least-allocated": _SCORED.format(strategy="LeastAllocated", gpu=GPU_MILLI),
    "most-allocated": _SCORED.format(strategy="MostAllocated", gpu=GPU_MILLI),
}
"""Name -> configuration: koord-scheduler's shipped profile; spread over the nodes; fill nodes up, GPUs counting double."""


PACKING = {"fgd": "GpuFragmentation", "packing": "GpuPacking"}
"""Policy -> plugin that packs GPUs for the mix of the pods."""

_PACKED = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  pluginConfig:
  - name: DeviceShare
    args: {{scoringStrategy: {{type: MostAllocated, resources: [{{name: koordinator.sh/gpu-memory-ratio}}]}}}}
  - name: {plugin}
    args: {{modelLabel: {label}, workload: {workload}}}
  plugins:
    filter: {{enabled: [{{name: DeviceShare}}]}}
    score: {{disabled: [{{name: "*"}}], enabled: [{{name: {plugin}, weight: 1}}]}}
"""


def packing_text(policy: str, model_label: str, workload: Sequence[Mapping[str, object]]) -> str:
    """Returns the configuration of one of PACKING for pods of this mix."""
    return _PACKED.format(plugin=PACKING[policy], label=model_label, workload=json.dumps(list(workload)))


class NoSuchPolicy(KoordError):
    """Neither the name of a policy nor a file that has one."""


def policy_text(policy: str) -> str:
    """The configuration that a policy stands for.

    Raises:
        NoSuchPolicy: with the names there are.
    """
    if policy in POLICIES:
        return POLICIES[policy]
    if policy in PACKING:
        return packing_text(policy, GPU_MODEL, ())
    try:
        text = Path(policy).read_text()
    except OSError as error:
        raise NoSuchPolicy(
            f"there is no policy {policy!r} and no such file ({error.strerror}); give {', '.join((*POLICIES, *PACKING))} or a "
            "KubeSchedulerConfiguration file"
        ) from error
    return _of_config_map(policy, text)


def _of_config_map(policy: str, text: str) -> str:
    """Returns the configuration in a ConfigMap, which the scheduler would take from there; any other text as it is.

    Raises:
        NoSuchPolicy: the ConfigMap has none.
    """
    try:
        plain = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if not isinstance(plain, dict) or plain.get("kind") != "ConfigMap":
        return text
    found, why = config_map_text(CONFIG_KEY, plain.get("data") or {})
    if found is None:
        raise NoSuchPolicy(f"policy {policy}: {why}")
    return found
