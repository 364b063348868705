"""Validation of the ConfigMap slo-controller-config: each key's document, then all node strategies against the nodes.

Pure: texts in, the first problem out. The webhook rejects the ConfigMap; the controller keeps the last valid document.

Source: spec/slo-controller.md 9; upstream pkg/webhook/cm/plugins/sloconfig.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import msgspec

from shared.admission.slo_config.network_shares import network_problem
from shared.admission.slo_config.strategy_bounds import value_out_of_bounds
from shared.admission.slo_config.strategy_words import unknown_word
from shared.domain.node_selection import problem_of, selects
from shared.kube.instants import BadTime, duration_ns
from shared.kube.json_text import read_json
from shared.kube.quantity import BadQuantity, nanos
from shared.kube.selectors import LabelSelector
from shared.kube.slo_config import (
    AmplificationConfig,
    BurstConfig,
    ColocationConfig,
    HostApplicationConfig,
    InterferenceConfig,
    NormalizationConfig,
    Part,
    QosConfig,
    SystemConfig,
    ThresholdConfig,
)
from shared.type_error_words import in_plain_words

COLOCATION = "colocation-config"
THRESHOLD = "resource-threshold-config"
QOS = "resource-qos-config"
BURST = "cpu-burst-config"
SYSTEM = "system-config"
HOST_APPLICATIONS = "host-application-config"
NORMALIZATION = "cpu-normalization-config"
AMPLIFICATION = "resource-amplification-config"
INTERFERENCE = "interference-config"

DOCUMENTS: Mapping[str, type[Part]] = {
    COLOCATION: ColocationConfig,
    THRESHOLD: ThresholdConfig,
    QOS: QosConfig,
    SYSTEM: SystemConfig,
    BURST: BurstConfig,
    HOST_APPLICATIONS: HostApplicationConfig,
    NORMALIZATION: NormalizationConfig,
    AMPLIFICATION: AmplificationConfig,
    INTERFERENCE: InterferenceConfig,
}
"""Key -> type of its document."""

CHECKED = (COLOCATION, THRESHOLD, QOS, SYSTEM, BURST, INTERFERENCE)
"""The keys that the webhook validates, in its order; the last one is this system's."""

PARSE, PARAM, OVERLAP, CONFLICT = (
    "ParseConfigFail",
    "ConfigParamInvalid",
    "NodeStrategiesOverlap",
    "ExistNodeConfict",  # upstream's spelling, which tools read
)
NETWORK = "network"
"""Reason of an invalid network QoS, which has no reason code upstream."""


class Problem(NamedTuple):
    """The violation in a rejected document.

    Attributes:
        reason: ParseConfigFail, ConfigParamInvalid, NodeStrategiesOverlap, ExistNodeConfict, or network.
        path: in the key's document, such as `nodeConfigs[0].degradeTimeMinutes`.
        strategy: `cluster`, or the name (the path, when it has none) of the node strategy.
        text: the found value, and what to do.
        nodes: examples, when nodes are in conflict.
    """

    reason: str
    key: str
    path: str
    strategy: str
    text: str
    nodes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.place} of strategy {self.strategy} {self.text}"

    @property
    def place(self) -> str:
        """The key, and the path in its document."""
        return f"{self.key}: {self.path}" if self.path else self.key

    @property
    def fault(self) -> str:
        """The fault at that place, with the strategy unless it is the cluster's."""
        return self.text if self.strategy == "cluster" else f"strategy {self.strategy}: {self.text}"


class Entry(NamedTuple):
    """One node strategy of a document."""

    path: str
    name: str
    selector: LabelSelector | None
    part: Part


def decoded(key: str, text: str) -> Part | Problem:
    """Decodes a key's document, or returns the problem."""
    try:
        document: Part = read_json(text, DOCUMENTS[key])
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        path = path.rstrip("`").removeprefix(".")
        return Problem(PARSE, key, path, _strategy_at(text, path), f"cannot be read: {in_plain_words(reason)}")
    except msgspec.DecodeError as error:
        return Problem(PARSE, key, "", "cluster", f"is no JSON: {error}")
    if bad := _bad_text(document):
        return Problem(PARSE, key, bad[0], _strategy_at(text, bad[0]), bad[1])
    return document


def entries(document: Part) -> tuple[Entry, ...]:
    """Returns the node strategies of a document."""
    for list_name, json_name in (("node_configs", "nodeConfigs"), ("node_strategies", "nodeStrategies")):
        if (found := getattr(document, list_name, None)) is not None:
            return tuple(
                Entry(f"{json_name}[{index}]", part.name or f"{json_name}[{index}]", part.node_selector, part)
                for index, part in enumerate(found)
            )
    return ()


def bounds_problem(key: str, document: Part, *, pairs_whole: bool = True) -> Problem | None:
    """Returns the first value out of its bounds.

    Args:
        pairs_whole: a bound that depends on another field is violated when that field is absent (quirk Q9).
    """
    return _first_in_strategies(key, document, lambda part: value_out_of_bounds(part, pairs_whole=pairs_whole))


def words_problem(key: str, document: Part) -> Problem | None:
    """Returns the first text that is none of the known ones, such as the name of a policy."""
    return _first_in_strategies(key, document, unknown_word)


def _first_in_strategies(key: str, document: Part, find: Callable[[Part], tuple[str, str] | None]) -> Problem | None:
    """Returns what is found in the cluster's strategy, else in the first strategy of nodes."""
    parts: list[tuple[str, str, Part]] = []
    cluster = getattr(document, "cluster_strategy", None)
    if cluster is not None:
        parts.append(("clusterStrategy", "cluster", cluster))
    elif not hasattr(document, "cluster_strategy"):
        parts.append(("", "cluster", document))
    parts += [(entry.path, entry.name, entry.part) for entry in entries(document)]
    for path, strategy, part in parts:
        if found := find(part):
            return Problem(PARAM, key, ".".join(filter(None, (path, found[0]))), strategy, found[1])
    return None


def validate(
    before: Mapping[str, str], after: Mapping[str, str], nodes: Mapping[str, Mapping[str, str]], *, names: bool = False
) -> Problem | None:
    """Validates a new or changed ConfigMap; None: it is valid.

    Args:
        before: data of the stored one; empty for a new one. A key with an unchanged text is not checked.
        nodes: name -> labels.
        names: each node strategy needs a unique name.
    """
    several: list[tuple[str, tuple[Entry, ...]]] = []
    for key in CHECKED:
        text = after.get(key, "")
        if not text or text == before.get(key, ""):
            continue
        document = decoded(key, text)
        if isinstance(document, Problem):
            return document
        system = decoded(SYSTEM, after.get(SYSTEM, "")) if key == QOS else None
        if isinstance(system, Problem):  # an absent one cannot be read: quirk Q10
            return system._replace(key=QOS, text=f"needs {SYSTEM} beside it, which {system.text}")
        found = entries(document)
        problem = (
            _selector_problem(key, found)
            or bounds_problem(key, document)
            or words_problem(key, document)
            or _network_problem(document, system)
            or (_name_problem(key, found) if names else None)
            or _overlap(key, found)
        )
        if problem:
            return problem
        if len(found) >= 2:
            several.append((key, found))
    return next((problem for key, found in several if (problem := _conflict(key, found, nodes))), None)


def _network_problem(document: Part, system: Part | None) -> Problem | None:
    if not isinstance(document, QosConfig) or not isinstance(system, SystemConfig):
        return None
    found = network_problem(document, system)
    return found and Problem(NETWORK, QOS, *found)


def _selector_problem(key: str, found: Iterable[Entry]) -> Problem | None:
    for entry in found:
        selector, path = entry.selector, f"{entry.path}.nodeSelector"
        if selector is None or not (selector.match_labels or selector.match_expressions):
            return Problem(PARAM, key, path, entry.name, "is empty; name the nodes that the strategy is for")
        if reason := problem_of(selector):
            return Problem(PARAM, key, path, entry.name, f"cannot be read: {reason}")
    return None


def _name_problem(key: str, found: Iterable[Entry]) -> Problem | None:
    seen: set[str] = set()
    for entry in found:
        name = getattr(entry.part, "name", "")
        if not name or name in seen:
            text = "is there twice" if name else "is empty"
            return Problem(
                PARAM, key, f"{entry.path}.name", entry.name, f"{text}; give each strategy a name of its own"
            )
        seen.add(name)
    return None


def _overlap(key: str, found: tuple[Entry, ...]) -> Problem | None:
    """Finds two selectors that select one hypothetical node, with the labels that a selector names.

    The values of all expressions are enumerated in parallel; operators are ignored.
    """
    for entry in found:
        for labels in _made_up(entry.selector):
            if twice := _selected_twice(found, labels):
                names = ", ".join(other.name for other in twice)
                text = f"select the same nodes; make their selectors exclude each other ({names})"
                return Problem(OVERLAP, key, f"{twice[0].path}.nodeSelector", names, text)
    return None


def _conflict(key: str, found: tuple[Entry, ...], nodes: Mapping[str, Mapping[str, str]]) -> Problem | None:
    for one, other in combinations(found, 2):
        both = [
            name for name, labels in nodes.items() if selects(one.selector, labels) and selects(other.selector, labels)
        ]
        if both:
            names = f"{one.name}, {other.name}"
            text = f"both select node {both[0]}; make their selectors exclude each other ({names})"
            return Problem(CONFLICT, key, f"{one.path}.nodeSelector", names, text, tuple(both[:10]))
    return None


def _made_up(selector: LabelSelector | None) -> list[dict[str, str]]:
    if selector is None:
        return []
    with_values = [requirement for requirement in selector.match_expressions if requirement.values]
    count = max((len(requirement.values) for requirement in with_values), default=1)
    return [
        dict(selector.match_labels or {})
        | {requirement.key: requirement.values[index % len(requirement.values)] for requirement in with_values}
        for index in range(count)
    ]


def _selected_twice(found: tuple[Entry, ...], labels: Mapping[str, str]) -> list[Entry]:
    hit = [entry for entry in found if selects(entry.selector, labels)]
    return hit if len(hit) >= 2 else []


def _bad_text(document: Part, path: str = "") -> tuple[str, str] | None:
    """Returns the first text that is no valid duration or quantity: (path, reason)."""
    for name, json_name in zip(type(document).__struct_fields__, type(document).__struct_encode_fields__, strict=True):
        value, at = getattr(document, name), f"{path}.{json_name}" if path else json_name
        if name == "durations":
            for index, text in enumerate(value):
                try:
                    duration_ns(text)
                except BadTime as error:
                    return f"{at}[{index}]", str(error)
        elif name == "total_network_bandwidth" and value is not None:
            try:
                nanos(str(value))
            except BadQuantity as error:
                return at, str(error)
        elif isinstance(value, Part) and (found := _bad_text(value, at)):
            return found
        elif isinstance(value, tuple):
            for index, part in enumerate(value):
                if isinstance(part, Part) and (found := _bad_text(part, f"{at}[{index}]")):
                    return found
    return None


def _strategy_at(text: str, path: str) -> str:
    """Returns the node strategy that a path points into, by its name if it has one; else `cluster`."""
    place, bracket, _ = path.partition("]")
    if not bracket or not place.startswith(("nodeConfigs[", "nodeStrategies[")):
        return "cluster"
    list_name, _, index = place.partition("[")
    whole: Any = read_json(text)
    entry = whole[list_name][int(index)] if index.isdigit() else None
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) and name else f"{place}]"
