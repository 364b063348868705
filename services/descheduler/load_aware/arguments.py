"""The arguments of LowNodeLoad: their schema, defaults and checks.

Source: spec/descheduler.md 2.1; spec/api.md 4.4.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from shared.domain.component_config import BadConfig, Strict, check_selector, converted, duration
from shared.kube.instants import SECOND
from shared.kube.selectors import LabelSelector

DEFAULT_POOL = "__default_node_pool__"
"""The pool of the top-level settings, which comes first."""

Percent = Annotated[float, Meta(ge=0)]
Percents = dict[str, Percent]


class NamespacesDocument(Strict):
    """Namespaces whose pods may move: those included, or all but those excluded."""

    include: list[str] | None = None
    exclude: list[str] | None = None


class PodSelectorDocument(Strict):
    """Pods that may move."""

    name: str = ""
    selector: LabelSelector | None = None


class AnomalyDocument(Strict):
    """When a node whose usage is high counts as anomalous."""

    timeout: str | None = None
    consecutive_abnormalities: int = 0
    consecutive_normalities: int = 0


class PoolDocument(Strict):
    """One pool; what it lacks comes from the top level, but for `useDeviationThresholds` and `nodeSelector`."""

    name: str = ""
    node_selector: LabelSelector | None = None
    use_deviation_thresholds: bool = False
    high_thresholds: Percents | None = None
    low_thresholds: Percents | None = None
    prod_high_thresholds: Percents | None = None
    prod_low_thresholds: Percents | None = None
    resource_weights: dict[str, int] | None = None
    anomaly_condition: AnomalyDocument | None = None


class LowNodeLoadDocument(PoolDocument):
    """The arguments as they are written."""

    paused: bool = False
    dry_run: bool = False
    number_of_nodes: Annotated[int, Meta(ge=0)] = 0
    node_metric_expiration_seconds: Annotated[int, Meta(gt=0)] | None = None
    evictable_namespaces: NamespacesDocument | None = None
    pod_selectors: list[PodSelectorDocument] | None = None
    node_fit: bool = True
    detector_cache_timeout: str | None = None
    node_pools: list[PoolDocument] | None = None
    use_predicted_peaks: bool = False


class AnomalyCondition(NamedTuple):
    """When a node whose usage is high counts as anomalous.

    Attributes:
        timeout_ns: how long it then does.
        abnormalities: one more high observations in a row make it anomalous; 1: it is at once.
        normalities: one more normal observations in a row end that.
    """

    timeout_ns: int
    abnormalities: int
    normalities: int


class PoolArgs(NamedTuple):
    """A pool, with what it inherits.

    Attributes:
        selector: of its nodes; None for all.
        low, high, prod_low, prod_high: resource -> percent, as configured: not completed yet.
        weights: resource -> weight in the order of nodes and of pods.
    """

    name: str
    selector: LabelSelector | None
    use_deviation: bool
    low: Mapping[str, float]
    high: Mapping[str, float]
    prod_low: Mapping[str, float]
    prod_high: Mapping[str, float]
    weights: Mapping[str, int]
    anomaly: AnomalyCondition


class LowNodeLoadArgs(NamedTuple):
    """The arguments of LowNodeLoad.

    Attributes:
        paused: do nothing.
        dry_run: decide, and evict nothing.
        number_of_nodes: act only with more low nodes than this.
        expiration_ns: a report of this age or more counts as missing.
        included, excluded: namespaces whose pods alone may move, or may not; None where not given.
        pod_selectors: pods that may move match one of them; empty for all.
        node_fit: only pods that fit a target node.
        detector_timeout_ns: a detector that was not used for longer is forgotten.
        pools: in the order in which they are processed.
        predicted_peaks: nodes count with the peaks that their agents predict; see `predicted_peaks.py`.
    """

    paused: bool
    dry_run: bool
    number_of_nodes: int
    expiration_ns: int
    included: frozenset[str] | None
    excluded: frozenset[str] | None
    pod_selectors: tuple[LabelSelector, ...]
    node_fit: bool
    detector_timeout_ns: int
    pools: tuple[PoolArgs, ...]
    predicted_peaks: bool = False


def read_args(plain: Mapping[str, Any], path: str) -> LowNodeLoadArgs:
    """Reads the arguments.

    Raises:
        BadConfig: a field is unknown or has an invalid value; the path locates it.
    """
    given = converted(dict(plain), LowNodeLoadDocument, path)
    namespaces = given.evictable_namespaces or NamespacesDocument()
    if namespaces.include and namespaces.exclude:
        raise BadConfig(f"{path}.evictableNamespaces", "has include and exclude; give one of them")
    selectors = []
    for number, each in enumerate(given.pod_selectors or ()):
        check_selector(each.selector, f"{path}.podSelectors[{number}].selector")
        if each.selector is not None:
            selectors.append(each.selector)
    top = _pool(given, DEFAULT_POOL, path, None)
    others = [
        _pool(pool, pool.name, f"{path}.nodePools[{number}]", (given, top))
        for number, pool in enumerate(given.node_pools or ())
    ]
    expiration_s = given.node_metric_expiration_seconds
    return LowNodeLoadArgs(
        paused=given.paused,
        dry_run=given.dry_run,
        number_of_nodes=given.number_of_nodes,
        expiration_ns=(180 if expiration_s is None else expiration_s) * SECOND,
        included=frozenset(namespaces.include) if namespaces.include else None,
        excluded=frozenset(namespaces.exclude) if namespaces.exclude else None,
        pod_selectors=tuple(selectors),
        node_fit=given.node_fit,
        detector_timeout_ns=duration(given.detector_cache_timeout, f"{path}.detectorCacheTimeout") or 300 * SECOND,
        pools=(top, *others),
        predicted_peaks=given.use_predicted_peaks,
    )


def _pool(given: PoolDocument, name: str, path: str, top: tuple[PoolDocument, PoolArgs] | None) -> PoolArgs:
    check_selector(given.node_selector, f"{path}.nodeSelector")
    inherited = top[0] if top else PoolDocument()
    low, high, prod_low, prod_high = (
        own if own is not None else other or {}
        for own, other in (
            (given.low_thresholds, inherited.low_thresholds),
            (given.high_thresholds, inherited.high_thresholds),
            (given.prod_low_thresholds, inherited.prod_low_thresholds),
            (given.prod_high_thresholds, inherited.prod_high_thresholds),
        )
    )
    for lesser, larger, fields in (
        (low, high, ("lowThresholds", "highThresholds")),
        (prod_high, high, ("prodHighThresholds", "highThresholds")),
        (prod_low, prod_high, ("prodLowThresholds", "prodHighThresholds")),
    ):
        for resource in sorted(lesser.keys() & larger.keys()):
            if lesser[resource] > larger[resource]:
                raise BadConfig(
                    f"{path}.{fields[0]}.{resource}",
                    f"{lesser[resource]:g} is above {fields[1]}.{resource}, {larger[resource]:g}; give at most that",
                )
    weights = dict(given.resource_weights if given.resource_weights is not None else top[1].weights if top else {})
    for resource in ("cpu", "memory", *(given.low_thresholds or ()), *(given.high_thresholds or ())):
        if weights.get(resource, 0) <= 0:
            weights[resource] = 1
    anomaly = _anomaly(given.anomaly_condition, path, top[1].anomaly if top else None)
    return PoolArgs(
        name, given.node_selector, given.use_deviation_thresholds, low, high, prod_low, prod_high, weights, anomaly
    )


def _anomaly(given: AnomalyDocument | None, path: str, top: AnomalyCondition | None) -> AnomalyCondition:
    """Returns the condition with its defaults.

    At the top level only the first missing counter gets its default, as upstream has it: a condition with nothing but a
    timeout lacks consecutiveNormalities, and is refused.
    """
    path = f"{path}.anomalyCondition"
    if given is None:
        return top or AnomalyCondition(60 * SECOND, 5, 3)
    abnormalities, normalities = given.consecutive_abnormalities, given.consecutive_normalities
    if top is not None:
        abnormalities, normalities = abnormalities or top.abnormalities, normalities or top.normalities
    elif abnormalities == 0:
        abnormalities = 5
    elif normalities == 0:
        normalities = 3
    for name, number in (("consecutiveAbnormalities", abnormalities), ("consecutiveNormalities", normalities)):
        if number <= 0:
            raise BadConfig(f"{path}.{name}", f"{number}; give 1 or more")
    return AnomalyCondition(duration(given.timeout, f"{path}.timeout") or 60 * SECOND, abnormalities, normalities)
