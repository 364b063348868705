"""The ConfigMap slo-controller-config: per key the newest valid document.

The State keeps the text of each key's last valid document; everything else is derived from the texts.

Source: spec/slo-controller.md 2.2, 7.1; upstream pkg/slo-controller/config, pkg/slo-controller/nodeslo.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from services.slo_controller.config.colocation_strategy import (
    DEFAULT_CONFIG,
    DEFAULTS,
    cluster_strategy,
    effective_strategy,
    first_invalid_field,
    with_durations,
)
from shared.admission.slo_config.document_validation import (
    AMPLIFICATION,
    BURST,
    COLOCATION,
    DOCUMENTS,
    HOST_APPLICATIONS,
    INTERFERENCE,
    NORMALIZATION,
    PARAM,
    QOS,
    SYSTEM,
    THRESHOLD,
    Problem,
    bounds_problem,
    decoded,
    words_problem,
)
from shared.domain.all_faults import Fault, all_faults
from shared.domain.slo_defaults import DEFAULT_BURST, DEFAULT_INTERFERENCE, DEFAULT_SYSTEM, DEFAULT_THRESHOLD
from shared.domain.strategy_merge import merged, sets_any_field
from shared.kube.json_text import read_json
from shared.kube.meta import Metadata
from shared.kube.slo_config import (
    AmplificationConfig,
    AmplificationStrategy,
    BurstConfig,
    ColocationConfig,
    ColocationStrategy,
    HostApplicationConfig,
    InterferenceConfig,
    NodeBurst,
    NodeInterference,
    NodeQos,
    NodeSystem,
    NodeThreshold,
    NormalizationConfig,
    NormalizationStrategy,
    Part,
    QosConfig,
    ResourceQos,
    SystemConfig,
    ThresholdConfig,
)

Texts = dict[str, str]
"""Key -> text of the document in force; a key without one has its defaults."""


class SloConfig(NamedTuple):
    """All documents, each merged over its defaults; node strategies merged over the cluster's."""

    colocation: ColocationConfig
    threshold: ThresholdConfig
    qos: QosConfig
    burst: BurstConfig
    system: SystemConfig
    host_applications: HostApplicationConfig
    normalization: NormalizationConfig
    amplification: AmplificationConfig
    interference: InterferenceConfig


class ActiveConfig:
    """The documents in force, and a cache of each node's strategy, valid as long as the node's metadata stay the same."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.documents = config_of(texts)
        self._cluster = cluster_strategy(self.documents.colocation)
        self._strategies: dict[str, tuple[Metadata, ColocationStrategy]] = {}

    def strategy(self, node: Metadata) -> ColocationStrategy:
        """Returns the strategy in force on a node."""
        known = self._strategies.get(node.name)
        if known is not None and known[0] is node:
            return known[1]
        strategy = effective_strategy(self.documents.colocation, node, self._cluster)
        self._strategies[node.name] = (node, strategy)
        return strategy


class ParsedConfigMap(NamedTuple):
    """The result of reading a ConfigMap.

    Attributes:
        texts: documents in force from here on.
        problems: rejected documents and node strategies, in the order of the keys.
    """

    texts: Texts
    problems: tuple[Problem, ...]


def read(data: Mapping[str, str], before: Mapping[str, str], *, bounds: bool = True) -> ParsedConfigMap:
    """Reads a ConfigMap key by key. After an invalid document, its key's last valid one stays in force.

    An invalid node strategy of `colocation-config` is a problem of its own: its nodes get the cluster's strategy, as
    upstream has it (E5), and the rest of the document is applied.

    Args:
        before: the documents in force so far.
        bounds: check the bounds and words of every key's values, also where no webhook saw the ConfigMap; upstream's
            controller checks the numbers of `colocation-config` alone.
    """
    texts: Texts = {}
    problems: list[Problem] = []
    for key in DOCUMENTS:
        text = data.get(key)
        if text is None or (key == COLOCATION and not text):
            continue
        document = decoded(key, text)
        problem = document if isinstance(document, Problem) else _document_problem(key, document, bounds=bounds)
        if problem is None:
            texts[key] = text
            problems += _invalid_entries(document) if isinstance(document, ColocationConfig) else ()
            continue
        problems += _all_problems(key, text, problem, bounds=bounds)
        if key in before:
            texts[key] = before[key]
    return ParsedConfigMap(texts, tuple(problems))


def _all_problems(key: str, text: str, first: Problem, *, bounds: bool) -> list[Problem]:
    """Returns the problems of a rejected document, of which the first is known."""
    try:
        plain = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return [first]
    met: dict[str, Problem] = {}

    def first_fault(rest: Any) -> Fault | None:
        document = decoded(key, msgspec.json.encode(rest).decode())
        problem = document if isinstance(document, Problem) else _document_problem(key, document, bounds=bounds)
        if problem is None and isinstance(document, ColocationConfig):
            problem = next(iter(_invalid_entries(document)), None)
        if problem is None:
            return None
        met[known := f"{problem.strategy}: {problem.text}"] = problem
        return Fault(problem.path, known)

    return [met[fault.reason]._replace(path=fault.path) for fault in all_faults(plain, first_fault)]


def config_of(texts: Mapping[str, str]) -> SloConfig:
    """Merges documents with their defaults; the texts come from `read`."""
    found = {key: _document(key, texts.get(key)) for key in DOCUMENTS}
    return SloConfig(
        colocation=_colocation(found[COLOCATION]),
        threshold=_section(found[THRESHOLD], DEFAULT_THRESHOLD, NodeThreshold),
        qos=_section(found[QOS], ResourceQos(), NodeQos),
        burst=_section(found[BURST], DEFAULT_BURST, NodeBurst),
        interference=_section(found[INTERFERENCE], DEFAULT_INTERFERENCE, NodeInterference),
        system=_section(found[SYSTEM], DEFAULT_SYSTEM, NodeSystem),
        host_applications=cast("HostApplicationConfig", found[HOST_APPLICATIONS]),
        normalization=_nodes_over_cluster(
            merged(NormalizationConfig(enable=False), found[NORMALIZATION]), NormalizationStrategy
        ),
        amplification=_nodes_over_cluster(
            merged(AmplificationConfig(enable=False), found[AMPLIFICATION]), AmplificationStrategy
        ),
    )


def _document(key: str, text: str | None) -> Part:
    document: Part = read_json(text or "{}", DOCUMENTS[key])
    return document


def _document_problem(key: str, document: Part, *, bounds: bool) -> Problem | None:
    if isinstance(document, ColocationConfig):
        if found := first_invalid_field(merged(DEFAULTS, document)):
            return Problem(PARAM, key, found[0], "cluster", found[1])
        # Only the cluster's strategy is checked here: an invalid node strategy does not reject the whole document.
        document = replace(document, node_configs=())
    return (bounds_problem(key, document, pairs_whole=False) or words_problem(key, document)) if bounds else None


def _invalid_entries(document: ColocationConfig) -> list[Problem]:
    cluster: ColocationStrategy = merged(DEFAULTS, document)
    problems = []
    for index, entry in enumerate(document.node_configs):
        path = f"nodeConfigs[{index}]"
        if found := first_invalid_field(merged(cluster, entry)):
            problems.append(Problem(PARAM, COLOCATION, f"{path}.{found[0]}", entry.name or path, found[1]))
    return problems


def _colocation(document: Part) -> ColocationConfig:
    config = merged(DEFAULT_CONFIG, replace(document, node_configs=()))
    cluster = replace(cluster_strategy(config), metric_aggregate_policy=with_durations(config))
    over = []
    for entry in cast("ColocationConfig", document).node_configs:
        whole = merged(cluster, entry)
        if first_invalid_field(whole):
            whole = cluster
        fields = _fields(whole, ColocationStrategy) | {"metric_aggregate_policy": with_durations(whole)}
        over.append(replace(entry, **fields))
    return ColocationConfig(**_fields(cluster, ColocationStrategy), node_configs=tuple(over))


def _section(document: Part, default: Part, entry_type: type[Part]) -> Any:
    """Merges a document of `clusterStrategy` and `nodeStrategies`. An entry without values gets the cluster's strategy."""
    configured = getattr(document, "cluster_strategy", None)
    cluster = default if configured is None else merged(default, configured)
    over = []
    for entry in getattr(document, "node_strategies", ()):
        whole = merged(cluster, entry) if sets_any_field(entry, type(default)) else cluster
        over.append(entry_type(name=entry.name, node_selector=entry.node_selector, **_fields(whole, type(default))))
    return replace(document, cluster_strategy=cluster, node_strategies=tuple(over))


def _nodes_over_cluster(config: Any, base: type[Part]) -> Any:
    cluster = base(**_fields(config, base))
    over = tuple(replace(entry, **_fields(merged(cluster, entry), base)) for entry in config.node_configs)
    return replace(config, node_configs=over)


def _fields(part: Part, base: type[Part]) -> dict[str, Any]:
    return {name: getattr(part, name) for name in base.__struct_fields__}
