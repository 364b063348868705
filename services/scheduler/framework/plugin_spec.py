"""Declaration of a plugin: its name, arguments, extension points, reasons, queueing hints and abilities.

A declaration needs neither numpy nor compiled code, so that the command line can print reasons without them.
Therefore it names the class of the plugin, which is imported when a profile uses it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from services.scheduler.framework.reasons import ReasonText
from services.scheduler.state.cluster_event import ClusterEvent


class Point(Enum):
    """Extension points at which plugins of this scheduler run. Source: kube-scheduler's framework."""

    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    SCORE = "score"
    PERMIT = "permit"
    PRE_BIND = "preBind"


class Normalize(Enum):
    """Normalization of raw scores to 0..100. Source: spec/scheduler-core.md 2, default normalization."""

    NONE = "the raw scores are 0..100"
    UP = "100 * score / highest; all 0 when the highest is 0"
    DOWN = "100 - that; all 100 when the highest is 0"
    OWN = "the plugin normalizes over the feasible nodes itself: a cross-node one, by `PluginCycleState.scores`"


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class PluginSpec:
    """Declaration of a scheduler plugin.

    Attributes:
        name: as in KubeSchedulerConfiguration.
        implementation: `module:class` of the plugin. The class is called with the result of `read_args`, or without
            arguments.
        points: extension points at which it runs. At PRE_FILTER it narrows the nodes down before all filters; at
            PRE_BIND `PluginCycleState.prepare` requests what a pod needs before it can be bound; at PERMIT it groups
            pods that wait for each other.
        read_args: decodes and checks the `args` of its pluginConfig ({} without one); the second argument is the
            path of these in the configuration, for errors. None: it has no arguments.
        unused_args: arguments of upstream's that it checks and that have no effect.
        reasons: code -> text of each reason for which it rejects a node. A code of several plugins has one text.
        queueing_hints: reason code -> cluster events after which a pod that was rejected for it is tried again.
        zero_score: what a score of 0 means for the pod, for explanations; None: nothing of note.
        normalize: normalization of its raw scores.
        node_only: its filter results and scores depend on the node object alone, and not on its allocatable, so that no
            step of a cycle changes them.
            Of a class of pods it reads the names of the requested resources at most, not the amounts.
        cross_node: they depend on pods on other nodes too, so that a placement may change those of any node.
        counts_placements: `PluginCycleState.place` counts the pods that the cycle places, of classes that it `counts`.
        counts_removals: `PluginCycleState.move` takes pods off that ran when the cycle began, for preemption.
        keeps_capacity: its state has amounts of its own that depend on a node's allocatable, besides those of the
            snapshot: `PluginCycleState.overlay` changes them.
        reserves: `PluginCycleState.reserve` allocates more of a node than free amounts: CPUs, NUMA zones. Its filter
            may pass a node on which nothing can be allocated, and a placement may make a node feasible that it
            rejected.
        admits_later: a placement may make a node feasible that it rejected, as by a volume that both pods use.
        fit_term: `PluginCycleState.fit_term` describes its filter, which the fused kernel computes. At most one plugin
            of a profile has this.
        prefers_nodes: `Plugin.preferred_nodes` names nodes that come before all scores.
        lifts_holds: `PluginCycleState.usable_holds` names the Reservations that pods of a class may use: their reserve
            pods do not count while the class is evaluated.
        requeues: cluster events after which any refused pod is tried again, whatever the reason.
        joins: names of plugins whose states of the same cycle and profile it reads: `PluginCycleState.join`.
        groups_pods: `Plugin.new_grouping` names groups of pods that are placed as a whole or not at all, and pods to
            keep from the queue until others exist.
        reads: resources that it reads besides nodes, pods and node metrics, as `plural.group`.
        annotations: annotations that its reservations write to a pod.
        view: last part of the route of its debug view below `/apis/v1/plugins/<name>/`; empty without a view.
    """

    name: str
    implementation: str
    points: frozenset[Point]
    read_args: Callable[[Mapping[str, Any], str], Any] | None = None
    unused_args: tuple[str, ...] = ()
    reasons: Mapping[str, ReasonText] = field(default_factory=dict)
    queueing_hints: Mapping[str, frozenset[ClusterEvent]] = field(default_factory=dict)
    zero_score: ReasonText | None = None
    normalize: Normalize = Normalize.NONE
    node_only: bool = False
    cross_node: bool = False
    counts_placements: bool = False
    counts_removals: bool = False
    keeps_capacity: bool = False
    reserves: bool = False
    admits_later: bool = False
    fit_term: bool = False
    prefers_nodes: bool = False
    lifts_holds: bool = False
    requeues: frozenset[ClusterEvent] = frozenset()
    joins: tuple[str, ...] = ()
    groups_pods: bool = False
    reads: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    view: str = ""
