"""The amplification ratios of a node's resources.

Source: spec/slo-controller.md 6.2; upstream pkg/slo-controller/noderesource/plugins/resourceamplification.
"""

from services.slo_controller.overcommit.batch_and_mid_amounts_written_to_node import NORMALIZATION_RATIO, parse_ratio
from services.slo_controller.overcommit.cpu_normalization import RatioError
from shared.domain.node_selection import first_match
from shared.kube.meta import Metadata
from shared.kube.slo_config import AmplificationConfig, AmplificationStrategy

AMPLIFICATION_RATIO = "node.koordinator.sh/resource-amplification-ratio"


def amplification_ratios(config: AmplificationConfig, node: Metadata) -> str | None:
    """Returns the text of the annotation; None: it is removed.

    The cpu's ratio is multiplied by the normalization ratio in the node's current annotation: a new normalization ratio
    takes effect in the next calculation (quirk Q14).

    Raises:
        RatioError: a ratio below 1.
    """
    strategy: AmplificationStrategy = first_match(config.node_configs, node.labels or {}) or config
    ratios = dict(strategy.resource_amplification_ratio or {}) if strategy.enable else {}
    cpu = ratios.get("cpu", 0.0)
    cpu = cpu if cpu > 0 else 1.0
    speed = parse_ratio((node.annotations or {}).get(NORMALIZATION_RATIO))
    final = cpu * speed if speed > 0 else cpu
    if final > 1:
        ratios["cpu"] = final
    for name, ratio in sorted(ratios.items()):
        if ratio < 1:
            raise RatioError(node.name, f"the amplification ratio of {name} is {ratio}; give at least 1")
    if not ratios:
        return None
    return "{" + ",".join(f'"{name}":{ratio:.2f}' for name, ratio in sorted(ratios.items())) + "}"
