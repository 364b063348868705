"""DeschedulerConfiguration: defaults, checks by path, and the last good one that stays in force.

Source: spec/descheduler.md 1.1.
"""

import pytest

from services.descheduler.configuration.config_reload import config_drafts
from services.descheduler.configuration.read_configuration import (
    DEFAULT_CONFIGURATION,
    faults_of,
    read_configuration,
)
from services.descheduler.service_manifest import CONFIG_MAP
from services.descheduler.state.descheduler_state import DeschedulerState
from shared.domain.component_config import BadConfig
from shared.domain.offered_config import OfferedConfig
from shared.events import RecordedEvent
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.events.log import ConfigApplied, ConfigRejected
from shared.kube.instants import SECOND

HEAD = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\n"


def test_the_default_configuration_moves_pods_by_jobs_and_selects_none() -> None:
    found = read_configuration(DEFAULT_CONFIGURATION)
    assert [profile.name for profile in found.profiles] == ["koord-descheduler"]
    assert found.profiles[0].sets == {
        "deschedule": (),
        "balance": (),
        "evict": ("MigrationController",),
        "filter": ("MigrationController",),
    }
    assert (found.interval_ns, found.dry_run, found.max_total) == (0, False, None)


def test_defaults_of_a_set_are_replaced_when_they_are_disabled() -> None:
    text = HEAD + "profiles: [{plugins: {evict: {disabled: [{name: '*'}], enabled: [{name: DefaultEvictor}]}}}]"
    assert read_configuration(text).profiles[0].sets["evict"] == ()  # it would evict without a place elsewhere
    assert "DefaultEvictor holds no places" in read_configuration(text).notes[0]


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("profiles: []", "profiles", "empty"),
        ("profiles: [{name: a}, {name: a}]", "profiles[1].name", "there already"),
        ("profiles: [{name: a}, {}]", "profiles[1].name", "each needs a name"),
        ("deschedulingInterval: soon", "deschedulingInterval", "not a duration"),
        ("deschedulingInterval: -5s", "deschedulingInterval", "negative"),
        ("healthzBindAddress: 'here:no'", "healthzBindAddress", "no port"),
        ("nodeSelector: {matchExpressions: [{key: a, operator: Near}]}", "nodeSelector", "no operator"),
        ("maxNoOfPodsToEvictTotal: -1", "maxNoOfPodsToEvictTotal", ">= 0"),
        ("deschedulinInterval: 5s", "", "perhaps 'deschedulingInterval' is meant"),
        (
            "profiles: [{plugins: {balance: {enabled: [{name: LowNodeLode}]}}}]",
            "profiles[0].plugins.balance.enabled[0].name",
            "perhaps 'LowNodeLoad' is meant",
        ),
        (
            "profiles: [{plugins: {deschedule: {enabled: [{name: LowNodeLoad}]}}}]",
            "profiles[0].plugins.deschedule.enabled[0].name",
            "no plugin of the set deschedule; enable it in balance",
        ),
        (
            "profiles: [{plugins: {evict: {disabled: [{name: '*'}]}}}]",
            "profiles[0].plugins.evict",
            "0 plugins are enabled; enable exactly one",
        ),
        (
            "profiles: [{plugins: {evict: {enabled: [{name: DefaultEvictor}]}}}]",
            "profiles[0].plugins.evict",
            "2 plugins are enabled",
        ),
        (
            "profiles: [{pluginConfig: [{name: LowNodeLoad}, {name: LowNodeLoad}]}]",
            "profiles[0].pluginConfig[1].name",
            "has arguments already",
        ),
        (
            "profiles: [{pluginConfig: [{name: LowNodeLoad, args: {kind: OtherArgs}}]}]",
            "profiles[0].pluginConfig[0].args.kind",
            "LowNodeLoadArgs",
        ),
    ],
)
def test_a_bad_configuration_is_rejected_with_its_path(text: str, path: str, reason: str) -> None:
    with pytest.raises(BadConfig) as caught:
        read_configuration(HEAD + text)
    assert caught.value.path == path
    assert reason in caught.value.reason


def test_all_faults_of_a_configuration_are_named() -> None:
    text = HEAD + "deschedulingInterval: soon\nprofiles: [{plugins: {balance: {enabled: [{name: Balanced}]}}}]"
    assert [fault.path for fault in faults_of(text)] == [
        "profiles[0].plugins.balance.enabled[0].name",
        "deschedulingInterval",
    ]


def test_the_last_good_configuration_stays_in_force_after_a_bad_one() -> None:
    state = DeschedulerState()
    good, bad = HEAD + "deschedulingInterval: 10s", HEAD + "deschedulingInterval: soon"
    assert _applied(state, good) == [ConfigApplied]
    assert _applied(state, good) == []
    assert _applied(state, bad) == [ConfigRejected]
    assert _applied(state, bad) == []
    assert state.configuration is not None
    assert state.configuration.interval_ns == 10 * SECOND
    assert _applied(state, good) == [ConfigApplied]  # ends the rejection in the record
    assert _applied(state, None) == [ConfigApplied]
    assert state.configuration.interval_ns == 0


def test_a_config_map_without_the_key_is_rejected_and_the_one_in_force_stays() -> None:
    state = DeschedulerState()
    assert _applied(state, HEAD + "deschedulingInterval: 10s") == [ConfigApplied]
    data = {"koord-descheduler-confg": HEAD, "notes": "x"}
    event = ObjectObserved(resource="configmaps", name=CONFIG_MAP, uid="u", object={"data": data})
    state.apply(RecordedEvent("cluster", 9, event))
    (draft,) = config_drafts(state, None)
    assert isinstance(draft.event, ConfigRejected)
    assert (draft.event.path, draft.event.reason) == (
        "data",
        (
            "the service reads the key koord-descheduler-config, and there is koord-descheduler-confg, notes; "
            "write the configuration below that key"
        ),
    )
    state.apply(RecordedEvent("descheduling", 9, draft.event))
    assert config_drafts(state, None) == []
    assert state.configuration is not None
    assert state.configuration.interval_ns == 10 * SECOND
    restored = DeschedulerState()
    restored.restore(state.encode())
    assert restored.config_map_fault == draft.event.reason


def test_a_file_takes_precedence_over_the_config_map() -> None:
    state = DeschedulerState()
    _observe(state, HEAD + "deschedulingInterval: 10s")
    drafts = config_drafts(state, OfferedConfig("file a.yaml", HEAD + "deschedulingInterval: 20s"))
    assert [draft.event.source for draft in drafts if isinstance(draft.event, ConfigApplied)] == ["file a.yaml"]


def _observe(state: DeschedulerState, text: str | None) -> None:
    seq = state.positions.get("cluster", 0) + 1
    event: ObjectObserved | ObjectDeleted = ObjectDeleted(resource="configmaps", name=CONFIG_MAP, uid="u")
    if text is not None:
        data = {"koord-descheduler-config": text}
        event = ObjectObserved(resource="configmaps", name=CONFIG_MAP, uid="u", object={"data": data})
    state.apply(RecordedEvent("cluster", seq, event))


def _applied(state: DeschedulerState, text: str | None) -> list[type]:
    _observe(state, text)
    drafts = config_drafts(state, None)
    for draft in drafts:
        seq = state.positions.get("descheduling", 0) + 1
        state.apply(RecordedEvent("descheduling", seq, draft.event))
    return [type(draft.event) for draft in drafts]
