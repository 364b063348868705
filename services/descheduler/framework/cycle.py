"""One cycle: the plugins of all profiles choose pods, each pod gets a destination, and what is left becomes cases.

The cycle has two halves, since the scheduler responds between them: `plan_cycle` chooses, `decide_cycle` records. Both
are pure: State, configuration, settings, the scheduler's answer and `now` in, events out.

Source: spec/descheduler.md 1.3 to 1.6.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from services.descheduler.configuration.configuration import Configuration, Profile
from services.descheduler.configuration.plugin_kinds import BALANCE, DESCHEDULE, EVICT, FILTER
from services.descheduler.framework.case_steps import step_drafts
from services.descheduler.framework.cycle_context import (
    MOST_PASSED_OVER,
    Chosen,
    CycleContext,
    CycleEvictor,
    Filter,
    Findings,
)
from services.descheduler.framework.eviction_limits import EvictionLimits
from services.descheduler.framework.migration_jobs import job_name, mode_and_ttl
from services.descheduler.framework.no_loops import NoLoops
from services.descheduler.framework.units_that_wait import (
    NO_ANSWERS,
    UnitAnswers,
    nodes_of_units,
    units_of_plugin,
)
from services.descheduler.load_aware.measured_node import Amounts, MeasuredNode, PodOnNode
from services.descheduler.migration.gang_minimum import gang_without_spare
from services.descheduler.plugins.registry import REGISTRY
from services.descheduler.settings import DecisionSettings
from services.descheduler.state.descheduler_state import DeschedulerState
from shared.domain.move_destinations import MOST_MOVES, DestinationsResponse, Move
from shared.domain.moves_for_waiting_unit import MovesForUnitRequest
from shared.domain.node_selection import meets
from shared.events import Draft, Event
from shared.events.descheduling import (
    Cause,
    DeschedulingCycled,
    EvictionCaseOpened,
    Expected,
    PassedOver,
    Victim,
)
from shared.kube.node import Node

MEASURED_SCOPES = ("node", "prod")
"""Scopes of causes whose resource is measured, so that the benefit can be, too."""

MOST_EXCLUDED = 100
"""Nodes that a question to the scheduler excludes for one pod, besides the sources."""

FEWEST_NODES = 2
"""With fewer nodes there is no other place for a pod, and a cycle does nothing."""


class PlannedCase(NamedTuple):
    """The result of one plugin of one profile."""

    profile: str
    plugin: str
    findings: Findings
    chosen: tuple[Chosen, ...]
    passed_over: tuple[PassedOver, ...]
    passed_over_count: int
    dry_run: bool


class CyclePlan(NamedTuple):
    """The first half of a cycle.

    Attributes:
        nodes: number of those selected.
        moves: the question to the scheduler; empty where nothing is to move.
        limits: what is left of them.
        faults: `profile/plugin` -> why it could not work.
        questions: `profile/plugin` -> what it asks the scheduler; with the answers the cycle is planned anew.
    """

    cycle: int
    nodes: int
    cases: tuple[PlannedCase, ...]
    moves: tuple[Move, ...]
    limits: EvictionLimits
    faults: Mapping[str, str]
    questions: Mapping[str, MovesForUnitRequest]


def plan_cycle(
    state: DeschedulerState,
    configuration: Configuration,
    settings: DecisionSettings,
    now_ns: int,
    answers: UnitAnswers = NO_ANSWERS,
) -> CyclePlan:
    """Runs the plugins: all of the set `deschedule` of all profiles, then those of `balance`.

    A plugin's fault ends neither the cycle nor the others: it is recorded with the plugin's name.

    Args:
        answers: of the scheduler, to the questions of an earlier plan of the same cycle.
    """
    cluster, number = state.cluster, state.cycle + 1
    limits = EvictionLimits(configuration)
    selected = [node for node in cluster.nodes.values() if _is_selected(node, configuration)]
    if len(selected) < FEWEST_NODES:
        return CyclePlan(number, len(selected), (), (), limits, {}, {})
    nodes = state.measured.of(cluster, (node.metadata.name for node in selected))
    usage = {node.name: node.pod_usage for node in nodes}
    loops = NoLoops(state, settings, now_ns)
    cases: list[PlannedCase] = []
    taken: dict[str, None] = {}
    faults: dict[str, str] = {}
    cycle = _Cycle(state, usage, limits, loops, now_ns, taken, cases, answers)
    for kind in (DESCHEDULE, BALANCE):
        for profile in configuration.profiles:
            there = [each for each in nodes if _is_of_profile(each.node, profile)]
            for plugin in profile.sets[kind]:
                try:
                    case = _run(cycle, profile, plugin, there)
                except Exception as error:  # noqa: BLE001  whatever it is, the other plugins go on
                    faults[f"{profile.name}/{plugin}"] = repr(error)
                    continue
                dry = configuration.dry_run or not profile.sets[EVICT]
                cases.append(case._replace(dry_run=dry or case.dry_run))
                taken.update(dict.fromkeys(each.pod.pod.metadata.uid for each in case.chosen))
    moves = _moves(cases, loops, [node.name for node in nodes], nodes_of_units(state.cases))
    questions = {f"{each.profile}/{each.plugin}": each.findings.question for each in cases if each.findings.question}
    return CyclePlan(number, len(nodes), tuple(cases), moves, limits, faults, questions)


def _is_selected(node: Node, configuration: Configuration) -> bool:
    """Reports whether a node is ready, as far as is known, and selected by the configuration."""
    ready = next((each.status for each in node.status.conditions if each.type == "Ready"), "True")
    selector = configuration.node_selector
    return ready == "True" and (selector is None or meets(selector, node.metadata.labels or {}))


def _is_of_profile(node: Node, profile: Profile) -> bool:
    selector = profile.node_selector
    return selector is None or meets(selector, node.metadata.labels or {})


class _Cycle(NamedTuple):
    """The inputs that all plugins of a cycle have in common.

    Attributes:
        usage: node -> pod -> usage that the node measured.
        taken: uids of the pods that plugins have chosen so far. cases: theirs.
    """

    state: DeschedulerState
    usage: Mapping[str, Mapping[str, Amounts]]
    limits: EvictionLimits
    loops: NoLoops
    now_ns: int
    taken: Mapping[str, None]
    cases: Sequence[PlannedCase]
    answers: UnitAnswers


def _run(cycle: _Cycle, profile: Profile, plugin: str, nodes: Sequence[MeasuredNode]) -> PlannedCase:
    """Runs one plugin of one profile."""
    of, state, now_ns, taken = f"{profile.name}/{plugin}", cycle.state, cycle.now_ns, cycle.taken

    def not_taken(pod: PodOnNode) -> str:
        return "another plugin moves it in this cycle" if pod.pod.metadata.uid in taken else ""

    filters: list[Filter] = [not_taken, cycle.loops.filter_of(plugin)]
    for name in profile.sets[FILTER]:
        new_filter = REGISTRY[name].new_filter
        if new_filter is not None:
            filters.append(new_filter(state, profile.args[name], now_ns))
    facts = state.migration.facts
    evictor = CycleEvictor(filters, cycle.limits, cycle.usage, lambda pod: gang_without_spare(facts, pod))
    kind, args = REGISTRY[plugin], profile.args[plugin]
    assert kind.run is not None, "only plugins that this release has are enabled"
    units = units_of_plugin(state.cases, cycle.answers, cycle.loops, of)
    if any(each.findings.unit or each.findings.question for each in cycle.cases):
        units = units._replace(case="another profile plans one")
    context = CycleContext(of, args, nodes, state.detectors.get(of), evictor, now_ns, state.cluster, units)
    findings: Findings = kind.run(context)
    return PlannedCase(
        profile.name,
        plugin,
        findings,
        tuple(evictor.chosen),
        tuple(evictor.passed_over),
        evictor.passed_over_count,
        dry_run=bool(getattr(args, "dry_run", False)),
    )


def _moves(cases: Sequence[PlannedCase], loops: NoLoops, nodes: Sequence[str], held: Iterable[str]) -> tuple[Move, ...]:
    """Returns the question to the scheduler: all chosen pods in order, without the nodes that are what is wrong. Pods that
    have ended need no other node.

    Args:
        held: nodes that are no destination, since pods leave them for a unit that waits. The one destination of a pod
            that leaves for a unit was planned together with the nodes of that.
    """
    sources = sorted({*held, *(name for case in cases for name in case.findings.sources)})
    running = (each for case in cases for each in case.chosen if not each.pod.pod.has_ended)
    return tuple(
        Move(
            each.pod.pod.metadata.uid,
            tuple(sorted({*(() if each.only else sources), *_not_allowed(each, nodes), *loops.left_by(each.pod)})),
            each.only,
        )
        for each in islice(running, MOST_MOVES)
    )


def _not_allowed(chosen: Chosen, nodes: Sequence[str]) -> list[str]:
    """Returns the nodes that are no destination of a pod; none where they are many, and its destination is checked alone."""
    if chosen.allowed is None:
        return []
    found = list(islice((name for name in nodes if name not in chosen.allowed), MOST_EXCLUDED + 1))
    return found if len(found) <= MOST_EXCLUDED else []


def decide_cycle(
    plan: CyclePlan,
    answer: DestinationsResponse,
    configuration: Configuration,
    settings: DecisionSettings,
) -> list[Draft]:
    """Records the second half of a cycle: a case for each plugin that found something and chose pods, and their jobs.

    A pod without a destination stays, unless `without_destination` allows it. A cycle that changes nothing is not
    recorded.
    """
    events: list[Event] = [event for case in plan.cases for event in case.findings.events]
    events += [desired for case in plan.cases if not case.dry_run for desired in case.findings.desired]
    drafts: list[Draft] = []
    ids = []
    for case in plan.cases:
        if not case.chosen:
            continue
        opened = _opened(plan, case, answer, settings)
        ids.append(opened.case)
        drafts.append(Draft(opened, correlation=opened.case))
        if opened.victims and not opened.dry_run:
            mode = mode_and_ttl(configuration, case.profile)
            drafts += step_drafts(opened, 1, opened.victims, settings.step_pods_per_node, *mode)
    if not drafts and not events and not plan.faults and configuration.interval_ns:
        return []
    cycled = DeschedulingCycled(
        name="cycle", cycle=plan.cycle, nodes=plan.nodes, cases=tuple(ids), faults=dict(plan.faults)
    )
    return [Draft(cycled), *map(Draft, events), *drafts]


def _opened(
    plan: CyclePlan, case: PlannedCase, answer: DestinationsResponse, settings: DecisionSettings
) -> EvictionCaseOpened:
    name = f"{case.plugin.lower()}-{plan.cycle}"
    if sum(each.plugin == case.plugin and bool(each.chosen) for each in plan.cases) > 1:
        name = f"{case.profile}-{name}"
    victims, passed_over = [], list(case.passed_over)
    refusals = _refusals(case.chosen, answer, settings)
    for number, chosen in enumerate(case.chosen):
        pod = chosen.pod.pod
        if why := refusals.get(pod.metadata.uid):
            passed_over.append(PassedOver(pod=chosen.pod.key, node=chosen.node, why=why))
            continue
        destination = answer.nodes.get(pod.metadata.uid, "")
        owner = pod.metadata.controller
        job = "" if case.dry_run else job_name(name, number, pod.metadata.uid)
        victims.append(
            Victim(
                chosen.pod.key,
                pod.metadata.uid,
                chosen.node,
                chosen.reason,
                owner.uid if owner else "",
                destination,
                job,
                dict(chosen.usage),
                pod.has_ended,
                chosen.gang,
            )
        )
    return EvictionCaseOpened(
        case=name,
        cycle=plan.cycle,
        profile=case.profile,
        plugin=case.plugin,
        causes=case.findings.causes,
        victims=tuple(victims),
        passed_over=tuple(passed_over[-MOST_PASSED_OVER:]),
        passed_over_count=case.passed_over_count + len(passed_over) - len(case.passed_over),
        expected=expected_gain(case.findings.causes, victims),
        budget=plan.limits.left(),
        scheduler_seen=answer.seen,
        dry_run=case.dry_run,
        unit=case.findings.unit,
    )


def _refusals(pods: Sequence[Chosen], answer: DestinationsResponse, settings: DecisionSettings) -> dict[str, str]:
    """Returns uid -> why a chosen pod stays, since it, or one of its group, has no destination."""
    found: dict[str, str] = {}
    for chosen in pods:
        metadata = chosen.pod.pod.metadata
        destination = answer.nodes.get(metadata.uid, "")
        if destination and chosen.only and destination != chosen.only:
            found[metadata.uid] = f"the scheduler would place it on {destination}, not on {chosen.only}"
        elif destination and chosen.allowed is not None and destination not in chosen.allowed:
            found[metadata.uid] = f"the scheduler would place it on {destination}, where it violates the same"
        elif not (destination or chosen.pod.pod.has_ended or settings.without_destination):
            why = answer.refused.get(metadata.uid) or answer.fault or "the scheduler was not asked about it"
            found[metadata.uid] = f"no destination: {why}"
    while True:  # a pod may be of a group, and of a gang whose other members are of another group
        before = len(found)
        for kind in (lambda each: each.group, lambda each: each.gang):
            _refuse_together(pods, kind, found)
        if len(found) == before:
            return found


def _refuse_together(pods: Sequence[Chosen], kind: Callable[[Chosen], str], found: dict[str, str]) -> None:
    """Adds the pods that stay since another one, with which they leave or not at all, does.

    Args:
        kind: what they leave with; empty for nothing.
        found: uid -> why a pod stays; added to.
    """
    staying: dict[str, str] = {}
    for chosen in pods:
        if kind(chosen) and chosen.pod.pod.metadata.uid in found:
            staying.setdefault(kind(chosen), chosen.pod.key)
    for chosen in pods:
        if kind(chosen) in staying:
            why = f"it leaves with {staying[kind(chosen)]} or not at all, which has no destination"
            found.setdefault(chosen.pod.pod.metadata.uid, why)


def expected_gain(causes: Sequence[Cause], victims: Sequence[Victim]) -> tuple[Expected, ...]:
    """Returns what each cause that is about measured usage amounts to without that of the victims that leave its node."""
    return tuple(
        Expected(
            cause.node,
            cause.resource,
            cause.measured,
            cause.measured - sum(v.usage.get(cause.resource, 0) for v in victims if v.node == cause.node),
            cause.limit,
        )
        for cause in causes
        if cause.scope in MEASURED_SCOPES
    )
