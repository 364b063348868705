"""The explanation of a pod's placement, and its text for terminals."""

import msgspec

from shared.kube.instants import millisecond_text


class Step(msgspec.Struct, frozen=True):
    """One event of the pod's history.

    Attributes:
        event: `context/seq`.
        at_ns: the instant of its append.
    """

    event: str
    at_ns: int
    type: str
    text: str


class Rejection(msgspec.Struct, frozen=True):
    """The number of nodes that one plugin rejected for one reason, and the reason's text.

    Attributes:
        remedy: what to look at, where the reason alone does not show it.
    """

    plugin: str
    code: str
    detail: str
    nodes: int
    text: str
    remedy: str = ""


class ScoredNode(msgspec.Struct, frozen=True):
    """One of the best nodes: its total and each plugin's weighted part.

    Attributes:
        remarks: what scores of 0 mean, of plugins that have such a text.
    """

    node: str
    score: int
    plugin_scores: dict[str, int]
    remarks: tuple[str, ...] = ()


class Evaluation(msgspec.Struct, frozen=True):
    """The nodes as the deciding cycle evaluated them, or as this scheduler evaluated them for a pod that another
    scheduler placed.

    Attributes:
        cycle: its number; 0 where another scheduler decided.
        event: `context/seq` of its CycleDecided.
        now_ns: the instant of the decision; seen: the positions it rests on; config: digest of the configuration.
        equals_before: pods of the same class placed before this one in the cycle: the nodes were evaluated before the
            first of them.
        node: the chosen node, empty for none.
        score: its total when this pod took it; `best` is as of the first pod of the class.
    """

    cycle: int
    event: str
    now_ns: int
    seen: dict[str, int]
    config: str
    equals_before: int
    node: str
    score: int
    nodes: int
    feasible: int
    rejected: tuple[Rejection, ...]
    best: tuple[ScoredNode, ...]


class Explanation(msgspec.Struct, frozen=True):
    """The state of a pod's placement and the events that led to it.

    Attributes:
        status: `bound`, `placed`, `nominated`, `unschedulable`, `rejected`, `suppressed`, `waiting`, `gated`, `ended`,
            `gone` or `unknown`.
        node: the node where the pod is, or is to be.
        summary: one sentence.
        evaluation: of its last placement or rejection, if that cycle is among the events.
        steps: its events in the order in which they were appended.
        ignored: its labels and annotations that cannot be read and have no effect.
        mistakes: of a pod that waits, what is probably misspelt: names that nothing has, and faults of its gang; of one
            on a node, that the quota of its label does not exist.
    """

    pod: str
    pod_uid: str
    status: str
    node: str
    summary: str
    evaluation: Evaluation | None
    steps: tuple[Step, ...]
    ignored: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()


def render(explanation: Explanation) -> str:
    """Returns the explanation as plain text, for a terminal without colours or a log."""
    lines = [f"{explanation.pod or 'unknown pod'} ({explanation.pod_uid or 'no uid'}): {explanation.summary}"]
    lines += [f"  ignored: {fault}" for fault in explanation.ignored]
    lines += [f"  check: {mistake}" for mistake in explanation.mistakes]
    if evaluation := explanation.evaluation:
        lines += ["", *_evaluation_lines(evaluation)]
    lines += ["", *(f"{millisecond_text(step.at_ns):<24}  {step.event:<18} {step.text}" for step in explanation.steps)]
    return "\n".join(lines) + "\n"


def _evaluation_lines(evaluation: Evaluation) -> list[str]:
    passed = f"{evaluation.feasible} of {evaluation.nodes} nodes passed every filter"
    title = f"cycle {evaluation.cycle}" if evaluation.cycle else "compared"
    lines = [f"{title} ({evaluation.event}) at {millisecond_text(evaluation.now_ns)}: {passed}"]
    if evaluation.equals_before:
        before = evaluation.equals_before
        equals = "an equal pod of the same cycle, which took its node first"
        if before > 1:
            equals = f"{before} equal pods of the same cycle, which took their nodes first"
        lines.append(f"  evaluated before {equals}")
    for rejection in evaluation.rejected:
        lines.append(f"  {rejection.nodes:>6}  {rejection.plugin}: {rejection.text}{_detail(rejection)}")
        if rejection.remedy:
            lines.append(f"          {rejection.remedy}")
    for best in evaluation.best:
        scores = ", ".join(f"{plugin} {score}" for plugin, score in best.plugin_scores.items())
        mark = "->" if best.node == evaluation.node else "  "
        lines.append(f"  {mark} {best.node}: {best.score} ({scores})")
        lines += (f"       {remark}" for remark in best.remarks)
    if evaluation.node and all(best.node != evaluation.node for best in evaluation.best):
        lines.append(f"  -> {evaluation.node}: {evaluation.score} when this pod's turn came")
    return lines


def _detail(rejection: Rejection) -> str:
    return f" ({rejection.detail})" if rejection.detail and rejection.detail not in rejection.text else ""
