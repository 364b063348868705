"""`koord up --shadow`: which settings it gives to whom, and what it needs."""

from pathlib import Path

from click.testing import CliRunner

from cli.main import koord
from cli.supervisor.command import shadow_words, shadowed, specs_for


def settings_of(*, shadow: bool, scheduler: str | None) -> dict[str, dict[str, str]]:
    specs = shadowed(specs_for(Path("config")), shadow=shadow, scheduler=scheduler)
    return {spec.service: {name: text for name, text in spec.env.items() if "SHADOW" in name} for spec in specs}


def test_shadow_mode_is_of_the_gateway_and_compares_with_the_default_scheduler() -> None:
    own = settings_of(shadow=True, scheduler=None)
    assert own["gateway"] == {"KOORD_GATEWAY_SHADOW": "true"}
    assert own["scheduler"] == {"KOORD_SCHEDULER_SHADOW_SCHEDULER": "default-scheduler"}
    assert settings_of(shadow=True, scheduler="volcano")["scheduler"] == {"KOORD_SCHEDULER_SHADOW_SCHEDULER": "volcano"}


def test_a_gateway_that_writes_may_compare_as_well() -> None:
    own = settings_of(shadow=False, scheduler="default-scheduler")
    assert own["gateway"] == {}
    assert own["scheduler"] == {"KOORD_SCHEDULER_SHADOW_SCHEDULER": "default-scheduler"}


def test_without_the_flags_nothing_is_set() -> None:
    assert not any(settings_of(shadow=False, scheduler=None).values())


def test_the_start_shows_that_nothing_is_written() -> None:
    def words(*, shadow: bool, scheduler: str | None) -> str:
        return shadow_words(shadowed(specs_for(Path("config")), shadow=shadow, scheduler=scheduler))

    compared = "placements of default-scheduler are compared (`koord shadow report`)"
    assert words(shadow=True, scheduler=None) == f"shadow mode: nothing is written to the cluster; {compared}"
    assert words(shadow=False, scheduler="default-scheduler") == compared
    assert not words(shadow=False, scheduler=None)


def test_shadow_mode_needs_a_cluster() -> None:
    result = CliRunner().invoke(koord, ["up", "--shadow"])
    assert (result.exit_code, "--kubeconfig" in result.stderr) == (2, True)
