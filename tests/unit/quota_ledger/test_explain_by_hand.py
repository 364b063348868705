"""The output of `koord explain quota`, read back and computed again from the printed numbers alone: spec/quota.md 3.1.

A contended tree of three levels in two resources, with a lender, a borrower, one that does not lend, pods of no quota,
and a quota of weight 0; then a node is lost, so that minima shrink, and a max is lowered below what is used.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings

from cli.quota import render
from services.quota_ledger.accounting.verify_invariants_by_replay import verify
from services.quota_ledger.decide.admission import AdmissionRules
from services.quota_ledger.explain.explain_runtime import explain
from services.quota_ledger.explain.quota_overview import OverviewRow, overview
from services.quota_ledger.explain.quota_shortfall_of_pod import explain_pod
from shared.domain.amounts import sub, total
from shared.events.cluster import NodeDeleted, ObjectObserved
from shared.kube.elastic_quota import PREFIX, RESERVED, ROOT
from shared.kube.quantity import amounts
from tests.support.hypothesis_examples import examples
from tests.support.quota_logs import Logs, node, pod, quota
from tests.unit.quota_ledger.random_histories import History, histories

QUOTAS = {
    # name: parent, min and max of cpu in cores and of memory in Gi
    "research": ("", 50, 100, 40, 100),
    "train": ("research", 20, 70, 20, 100),
    "vision": ("train", 10, 40, 8, 64),
    "speech": ("train", 10, 40, 4, 64),
    "serve": ("research", 25, 60, 20, 100),
    "edge": ("serve", 20, 30, 8, 64),
    "api": ("serve", 5, 30, 8, 64),
    "shop": ("", 35, 80, 40, 100),
    "web": ("shop", 25, 60, 8, 64),
    "pay": ("shop", 10, 20, 8, 64),
    "batch": ("", 0, 100, 0, 100),
    "spare": ("", 0, 10, 0, 10),
}
PODS = {
    "vision": (30, "5", 6),
    "speech": (7, "3", 5),
    "api": (3, "4", 3),
    "web": (4, "5", 4),
    "batch": (9, "4", 4),
    "spare": (1, "2", 0),
}
"""How many, of how many cores each, and how many of them run."""
LEAVES = ("vision", "speech", "edge", "api", "web", "pay", "batch", "spare")


def declared(name: str, most: int | None = None) -> ObjectObserved:
    parent, *bounds = QUOTAS[name]
    event = quota(name, str(bounds[0]), str(most or bounds[1]), parent, is_parent=name not in LEAVES)
    event.object["spec"]["min"]["memory"], event.object["spec"]["max"]["memory"] = (f"{gib}Gi" for gib in bounds[2:])
    metadata = event.object["metadata"]
    if name in ("batch", "spare"):
        weight = '{"cpu": "20", "memory": "1Gi"}' if name == "batch" else '{"cpu": "0", "memory": "1Gi"}'
        metadata["annotations"] = {PREFIX + "shared-weight": weight}
    if name == "edge":
        metadata["labels"][PREFIX + "allow-lent-resource"] = "false"
    return event


def contended() -> Logs:
    logs = Logs()
    logs.append("cluster", node("n1", "50"), node("n2", "50"), *map(declared, QUOTAS), pod("stray", "", "3", at="n2"))
    for name, (count, cpu, running) in PODS.items():
        logs.append(
            "cluster",
            *(pod(f"{name}-{number}", name, cpu, at="n1" if number < running else "") for number in range(count)),
        )
    return logs


def node_lost() -> Logs:
    logs = contended()
    logs.append("cluster", NodeDeleted(node="n1", node_uid=""))
    return logs


def max_lowered() -> Logs:
    logs = contended()
    logs.append("cluster", declared("vision", most=12))
    return logs


Situation = Callable[[], Logs]
SITUATIONS = pytest.mark.parametrize("situation", [contended, node_lost, max_lowered])


class Child(NamedTuple):
    """A printed line of a level."""

    name: str
    requests: int
    counts: int
    min: int
    floor: int
    weight: int
    lends: bool
    terms: list[int]
    runtime: int


class Level(NamedTuple):
    """A printed level."""

    resource: str
    parent: str
    capacity: int
    children: list[Child]
    rounds: list[tuple[int, int]]
    balance: list[int]


STEP = re.compile(
    r"  (?P<name>\S+): requests (?P<requests>\w+)(?:, (?:of which|at least) (?P<counts>\w+) count)?, min (?P<min>\w+)"
    r"(?:, in force (?P<floor>\w+))?, weight (?P<weight>\w+)(?P<kept>, does not lend)?: (?P<terms>.+) = (?P<runtime>\w+)"
)


def levels(text: str) -> Iterator[Level]:
    """Those that are written out."""
    for block in text.split("\n\n"):
        head, *body = block.splitlines()
        found = re.fullmatch(r"(\S+) below (\S+): (.+ = )?(\w+) to share", head)
        if found is None:
            continue
        resource = found[1]

        def of(quantity: str, resource: str = resource) -> int:
            return amounts({resource: quantity})[resource]

        if found[3]:  # `100 - 3 that a group uses = 97`
            there, *taken = re.findall(r"(?:^|- )(\w+)", found[3])
            assert of(there) - sum(map(of, taken)) == of(found[4])
        children = []
        for each in filter(None, map(STEP.fullmatch, body)):
            child = Child(
                each["name"],
                of(each["requests"]),
                of(each["counts"] or each["requests"]),
                of(each["min"]),
                of(each["floor"] or each["min"]),
                of(each["weight"]),
                not each["kept"],
                [of(term) for term in each["terms"].split(" + ")],
                of(each["runtime"]),
            )
            children.append(child)
        shared = next((line for line in body if "shared by weight" in line), "")
        rounds = [(of(left), of(over)) for left, over in re.findall(r"(\w+) over (\w+)", shared)]
        balance = re.fullmatch(r"  surplus (-?\w+) \+ lent (\w+) = borrowed (\w+) \+ idle (-?\w+)", body[-1])
        assert balance is not None, body[-1]
        yield Level(resource, found[2], of(found[4]), children, rounds, [of(size) for size in balance.groups()])


def worked_out(level: Level) -> tuple[dict[str, list[int]], list[tuple[int, int]]]:
    """The share of each child, at first and in each round; and the rounds: what is left, and the weights it is divided by."""
    minima = sum(child.min for child in level.children)
    got: dict[str, list[int]] = {}
    for child in level.children:
        floor = child.min if level.capacity >= minima else max(0, level.capacity) * child.min // minima
        got[child.name] = [floor if child.counts > floor or not child.lends else child.counts]
    left = level.capacity - sum(first for [first] in got.values())
    hungry = [child for child in level.children if child.counts > got[child.name][0]]
    rounds = []
    while left > 0 and (weights := sum(child.weight for child in hungry)):
        rounds.append((left, weights))
        portions = {child.name: child.weight * left // weights for child in hungry}
        by_rest = sorted(hungry, key=lambda child: (-(child.weight * left % weights), child.name))
        for child in by_rest[: left - sum(portions.values())]:
            portions[child.name] += 1
        for child in hungry:
            got[child.name].append(min(portions[child.name], child.counts - sum(got[child.name])))
        left = sum(portions.values()) - sum(got[child.name][-1] for child in hungry)
        hungry = [child for child in hungry if sum(got[child.name]) < child.counts]
    return got, rounds


@SITUATIONS
def test_every_printed_level_is_what_plain_rules_make_of_it(situation: Situation) -> None:
    projection, seen = situation().state.projection, 0
    for name in QUOTAS:
        for level in levels(render.explained(explain(projection, name))):
            seen += 1
            got, rounds = worked_out(level)
            assert {child.name: child.terms for child in level.children} == got
            assert level.rounds == rounds
            assert all(sum(child.terms) == child.runtime for child in level.children)
            floors = [got[child.name][0] if child.counts > child.floor else child.floor for child in level.children]
            assert [child.floor for child in level.children] == floors
            above = [child.runtime - child.floor for child in level.children]
            lent, borrowed = -sum(size for size in above if size < 0), sum(size for size in above if size > 0)
            idle = level.capacity - sum(child.runtime for child in level.children)
            assert level.balance == [level.capacity - sum(floors), lent, borrowed, idle]
            assert level.balance[0] + lent == borrowed + idle
    assert seen > len(QUOTAS)


@SITUATIONS
def test_the_levels_fit_together_and_pods_add_up_to_requests_and_use(situation: Situation) -> None:
    projection = situation().state.projection
    for name, (parent, *_) in QUOTAS.items():
        text = render.explained(explain(projection, name))
        found = {(level.resource, level.parent): level for level in levels(text)}
        for (resource, above), level in found.items():
            if above != ROOT and (resource, QUOTAS[above][0] or ROOT) in found:
                [own] = [child for child in found[resource, QUOTAS[above][0] or ROOT].children if child.name == above]
                assert own.runtime == level.capacity
                assert own.requests == sum(child.counts for child in level.children)
        if name in PODS:
            count, cpu, running = PODS[name]
            of_pods = {child.name: child.requests for child in found["cpu", parent or ROOT].children}[name]
            assert of_pods == count * int(cpu) * 1000
            assert f"used cpu {running * int(cpu)}" in text or not running
            assert uses_and_waits(text) == (running * int(cpu) * 1000, (count - running) * int(cpu) * 1000)


def uses_and_waits(text: str) -> tuple[int, int]:
    """Sums the use and the waiting requests of pods in a printed explanation, in milli-cores."""
    cpu = {
        word: sum(
            amounts({"cpu": size})["cpu"] for size in re.findall(rf"{word} cpu (\w+)", text.partition("Pods:")[2])
        )
        for word in ("uses?", "waits? for")
    }
    return cpu["uses?"], cpu["waits? for"]


@SITUATIONS
def test_a_pod_that_is_short_is_short_of_what_is_printed(situation: Situation) -> None:
    projection = situation().state.projection
    for uid, held in projection.pods.items():
        found = explain_pod(projection, uid, AdmissionRules())
        if found.state != "short":
            continue
        text = render.why_pod(found)
        numbers = re.search(r"runtime: cpu:(\w+),.*used: (?:cpu:(\w+)|<empty>).*request: cpu:(\w+)", text)
        assert numbers is not None, text
        runtime, used, request = (amounts({"cpu": size or "0"})["cpu"] for size in numbers.groups())
        assert found.missing == {"cpu": used + request - runtime}
        holders = sum(amounts({"cpu": size})["cpu"] for size in re.findall(r"held by .*: cpu (\w+)", text))
        assert holders == used
        lowered = held.quota == "vision" and situation is max_lowered
        assert ("its max is cpu 12" in text) == lowered
        assert not lowered or not found.borrowers
        borrowed = {line.quota: line.borrowed for line in overview(projection) if line.resource == "cpu"}
        assert all(of == {"cpu": borrowed[name]} for name, of in found.borrowers.items())


@settings(max_examples=examples(100), deadline=None)
@given(histories())
def test_the_overview_adds_up(history: History) -> None:
    projection = verify(history.records).projection
    found: dict[str, dict[str, OverviewRow]] = {}
    for line in overview(projection):
        found.setdefault(line.quota, {})[line.resource] = line
    quotas = projection.trees[""].quotas
    for name, of in found.items():
        below = [child for child in quotas[name].children if child not in RESERVED]
        own = [pod for pod in projection.pods.values() if pod.quota == name]
        used, requested = total(pod.request for pod in own if pod.charged), total(pod.request for pod in own)
        for resource, line in of.items():
            under = [found[child][resource] for child in below if resource in found[child]]
            assert line.used == used.get(resource, 0) + sum(each.used for each in under)
            waits = sub(requested, used).get(resource, 0)
            assert line.waiting == waits + sum(each.waiting for each in under)
            if name == ROOT:
                held = total(quotas[group].used for group in RESERVED)
                assert line.runtime == projection.trees[""].total.get(resource, 0) - held.get(resource, 0)
            elif name not in RESERVED:
                assert (line.runtime is None) == (line.max is None)
                floor, runtime = quotas[name].scaled_min.get(resource, 0), line.runtime
                assert runtime is None or (line.borrowed, line.lent) == (
                    max(0, runtime - floor),
                    max(0, floor - runtime),
                )
