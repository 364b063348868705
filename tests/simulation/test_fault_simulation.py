"""The whole system under simulated faults: seeds that break no invariant, faults that are found, and the shrink."""

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from click.testing import CliRunner

from cli.dev.fault_simulation import plan as plans
from cli.dev.fault_simulation.migrations import DEFRAGMENT_ALONE
from cli.dev.fault_simulation.plan import FORGERIES, drawn
from cli.dev.fault_simulation.plan_step import Step
from cli.dev.fault_simulation.run_seeds import Failure, shrunk_failure
from cli.dev.fault_simulation.run_world import run, settle_memory, simulate
from cli.dev.fault_simulation.substitutions import substituted
from cli.dev.fault_simulation.world import World
from cli.main import koord
from shared.agents import receipt
from tests.simulation.mutations import MUTATIONS

SEEDS_OF_A_MUTATION = 120
"""Each fault that is put back is found within so many seeds; most of them within ten."""

FINDS_IT = {
    "pods_leave_before_their_place_is_held": 8,
    "places_are_held_on_any_node": 37,
    "limits_of_workloads_are_ignored": 144,
    "statuses_of_jobs_are_not_carried_forward": 114,
    "revoked_pods_are_requested_again": 81,
    "claims_have_two_volumes": 30,
    "pods_are_bound_before_their_volumes": 1,
    "volumes_are_given_to_their_claims_for_ever": 1,
    "cpus_of_reservations_are_given_twice": 22,
    "pods_beside_those_taken_over_do_not_count": 24,
    "unhealthy_cards_take_pods": 40,
    "shares_of_cards_are_given_twice": 0,
    "missing_cards_stay": 16,
    "failing_cards_wait_for_their_turn": 48,
    "given_up_for_good": 11,
    "members_are_placed_one_by_one": 0,
    "a_refused_charge_takes_one_member_alone": 0,
    "reservations_hold_nothing": 4,
    "statuses_outlast_their_objects": 3,
    "nothing_is_carried_forward": 2,
    "outcomes_leave_before_their_intents": 2,
    "the_lease_of_another_system_is_taken": 30,
    "effects_go_on_without_the_lease": 30,
    "tries_outlast_the_lease": 30,
    "placements_hold_no_room": 3,
    "quotas_are_not_compared": 0,
    "ambiguous_answers_are_refusals": 9,
    "bindings_are_claimed_before_they_are_made": 8,
    "lists_do_not_show_deletions": 6,
    "short_lists_are_believed": 81,
    "snapshots_lose_open_intents": 4,
    "cpus_are_given_twice": 6,
    "copies_are_made_of_what_the_partition_held": 18,
    "every_context_may_carry_every_intent": 9,
    "a_504_on_a_read_ends_the_gateway": 64,
    "held_members_are_bound": 11,
    "old_effects_are_carried_out": 17,
    "budgets_of_evictions_are_ignored": 1,
    "evictions_before_a_crash_spend_nothing": 1,
    "forged_allocations_are_believed": 49,
    "any_cluster_is_the_cluster_of_the_log": 34,
    "the_clock_of_a_service_ages_its_partitions": 21,
    "silence_counts_as_zero": 6,
    "requests_since_the_report_are_overcommitted": 51,
}
"""The first seed that found each of them when it was added: tried first, for the sake of time alone. A change to what
seeds draw makes these obsolete; the test then searches.
"""

DIRECTED = {
    "members_leave_before_the_places_of_their_gang_are_held": "a_place_of_a_gang_is_deleted_before_it_is_held",
    "victims_for_a_waiting_unit_leave_one_by_one": "a_place_of_a_victim_for_a_waiting_gang_is_deleted",
    "inventories_that_wait_are_accepted": "an_inventory_that_waits_is_lost_in_a_crash",
    "volumes_are_chosen_for_two_claims": "three_claims_want_two_volumes",
    "volumes_of_bound_claims_are_free": "a_claim_is_bound_before_its_volume_is_observed",
    "pods_are_taken_over_twice": "two_reservations_want_one_pod",
    "reservations_are_kept_as_they_are_alone": "a_reservation_keeps_its_cpus_after_retention",
    "pods_of_a_reservation_that_is_gone_are_not_taken_over": "a_reservation_is_gone_before_its_pods_are_folded",
    "failed_without_a_read": "bindings_hang_until_the_deadline",
    "requests_of_an_earlier_gateway_are_forgotten": "an_earlier_gateway_s_binding_is_executed_late",
    "refused_gangs_are_tried_at_once": "a_quota_refuses_members_that_hold_nodes",
    "conditions_are_written_whatever_the_version": "a_condition_is_written_after_the_binding",
    "desired_states_outlast_their_object": "a_pod_comes_back_under_its_name",
    "older_statuses_are_carried_forward": "an_older_status_is_carried_forward",
    "evictions_before_an_observed_binding_have_no_node": "a_pod_is_evicted_before_its_binding_is_observed",
}
"""The kept plans that find a fault which needs a certain order of events."""

KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))


@pytest.fixture(autouse=True)
def _frees_worlds() -> object:
    yield
    settle_memory()


def test_seeds_break_no_invariant() -> None:
    for seed in range(12):
        outcome = simulate(seed, drawn(seed))
        assert outcome.violations == (), f"koord dev simulate-faults --seed {seed} --seeds 1"
        settle_memory()


def test_a_tenth_of_the_worlds_has_a_gang_for_which_pods_must_leave() -> None:
    there = [any(step.what == DEFRAGMENT_ALONE for step in drawn(seed)) for seed in range(400)]
    assert 0.07 < sum(there) / len(there) < 0.13


def test_pods_are_moved_in_every_world_where_that_is_chosen() -> None:
    plans_ = [drawn(seed, moves_pods=True) for seed in range(200)]
    assert all(any(step.do == "add-migrations" for step in plan) for plan in plans_)
    assert any(step.what == DEFRAGMENT_ALONE for plan in plans_ for step in plan)


def test_moves_admit_such_a_gang() -> None:
    seed = 67
    world = World(seed)
    with substituted(world.loop, seed):
        run(world, drawn(seed))
        rows = [row.data for row in world.postgres.contexts["descheduling"].rows if "CaseClosed" in row.type]
        world.loop.dispose()
    assert world.violations == []
    assert [json.loads(data)["unit"] for data in rows] == ["admitted"]


def test_a_seed_has_one_history_in_every_process() -> None:
    program = (
        "import sys\n"
        "from cli.dev.fault_simulation.plan import drawn\n"
        "from cli.dev.fault_simulation.run_world import simulate\n"
        "for seed in map(int, sys.argv[1:]):\n"
        "    found = simulate(seed, drawn(seed))\n"
        "    print(found.steps, found.digest)\n"
    )

    def histories(hash_seed: str, *seeds: str) -> list[str]:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(
            [sys.executable, "-c", program, *seeds], env=environment, check=True, capture_output=True, text=True
        ).stdout.splitlines()

    [alone], [other, after_another] = histories("1", "9"), histories("2", "3", "9")
    assert alone == after_another != other


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_fault_that_is_put_back_is_found(name: str) -> None:
    with MUTATIONS[name]():
        if name in DIRECTED:
            assert _simulate_kept(DIRECTED[name])
            return
        for seed in (FINDS_IT.get(name, 0), *range(SEEDS_OF_A_MUTATION)):
            violations = simulate(seed, drawn(seed)).violations
            settle_memory()
            if violations:
                return
    pytest.fail(f"no seed below {SEEDS_OF_A_MUTATION} finds it")


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.stem)
def test_a_kept_failure_does_not_come_back(kept: Path) -> None:
    assert _simulate_kept(kept.stem) == ()


def _simulate_kept(name: str) -> tuple[str, ...]:
    file = Path(__file__).parent / "kept" / f"{name}.json"
    failure = msgspec.json.decode(file.read_bytes(), type=Failure)
    return simulate(failure.seed, failure.plan).violations


def test_a_failure_is_shrunk_to_the_steps_that_it_needs() -> None:
    with MUTATIONS["every_context_may_carry_every_intent"]():
        plan = (
            Step(1.0, "create-pod", "first", "plain", 1),
            Step(2.0, "create-pod", "second", "plain", 1),
            Step(3.0, "lag-watches", for_s=1.0, rate=0.5),
            Step(5.0, "usurp", "metrics-ingest"),
            Step(6.0, "expire-watches"),
        )
        found = simulate(1, plan).violations
        assert found
        shrunk = shrunk_failure(Failure(1, found, plan))
    assert [step.do for step in shrunk.plan] == ["create-pod", "usurp"]
    assert shrunk.violations


def test_the_command_prints_what_was_found(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(plans.encode((Step(1.0, "create-pod", "one", "plain", 1),)))
    printed = CliRunner().invoke(koord, ["dev", "simulate-faults", "--plan", str(file), "--json"])
    assert printed.exit_code == 0, printed.output
    result = msgspec.json.decode(printed.stdout)
    assert (result["seeds"], result["violations"]) == (1, 0)
    assert result["seeds_per_s"] >= 0


def test_the_command_ends_with_1_on_a_violation(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(plans.encode((Step(1.0, "create-pod", "one", "plain", 1), Step(5.0, "usurp", "metrics-ingest"))))
    with MUTATIONS["every_context_may_carry_every_intent"]():
        printed = CliRunner().invoke(koord, ["dev", "simulate-faults", "--plan", str(file)])
    assert printed.exit_code == 1, printed.output
    assert "no service that may has requested it" in printed.output
    assert "usurp metrics-ingest" in printed.output


def test_an_agent_that_ends_with_an_error_is_a_violation() -> None:
    with patch.object(receipt, "decode", side_effect=ValueError("no receipt")):
        found = simulate(1, (Step(1.0, "create-pod", "one", "plain", 1),)).violations
    assert any("the agent of node-0 ended with ValueError('no receipt')" in each for each in found), found


def test_a_plan_with_an_unknown_step_is_named() -> None:
    assert "there is no step 'dance'" in simulate(1, (Step(1.0, "dance"),)).violations[0]


@pytest.mark.parametrize("what", FORGERIES)
def test_a_forged_announcement_changes_nothing(what: str) -> None:
    """Fault 01."""
    pod, forged = Step(1.0, "create-pod", "one", "plain", 1), Step(5.0, "forge", "scheduling", what)
    assert simulate(3, (pod, forged)).violations == ()


def test_short_lists_delete_nothing() -> None:
    """Fault 13."""
    plan = (
        Step(1.0, "create-pod", "one", "plain", 1),
        Step(1.0, "create-pod", "two", "plain", 1),
        Step(5.0, "api", what="short", rate=1.0, for_s=2.0),
        Step(5.1, "expire-watches"),
    )
    assert simulate(3, plan).violations == ()
