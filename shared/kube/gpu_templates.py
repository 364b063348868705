"""Templates of shared GPUs: the amounts in which a model can be divided, from a ConfigMap.

    data.yaml: |
      huawei-Ascend-310P:
        vir01: {huawei.com/npu-core: 1, huawei.com/npu-cpu: 1, koordinator.sh/gpu-memory: 3Gi}

Source: spec/scheduler-workloads.md 3.5.
"""

from collections.abc import Mapping
from typing import Any

from shared.kube.quantity import BadQuantity, amounts

CONFIG_MAP = "koordinator-system/gpu-shared-resource-templates"
KEY = "data.yaml"

GpuTemplates = Mapping[str, Mapping[str, Mapping[str, int]]]
"""`vendor-model` -> name -> resource -> amount."""


def read_gpu_templates(config_map: Mapping[str, Any] | None) -> GpuTemplates:
    """Reads the templates in a ConfigMap; none where there is none. A template that cannot be read is left out."""
    text = ((config_map or {}).get("data") or {}).get(KEY)
    if not isinstance(text, str):
        return {}
    import yaml  # a command that reads the log starts without it

    try:
        read = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):
        return {}
    if not isinstance(read, dict):
        return {}
    found: dict[str, dict[str, Mapping[str, int]]] = {}
    for kind, by_name in read.items():
        for name, quantities in by_name.items() if isinstance(by_name, dict) else ():
            try:
                texts = {str(each): str(size) for each, size in dict(quantities).items()}
                found.setdefault(str(kind), {})[str(name)] = amounts(texts)
            except (BadQuantity, TypeError, ValueError):
                continue
    return found
