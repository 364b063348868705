"""kubectl's `KIND/NAME` where the kind is named already."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from cli.terminal.kind_names import without_kind
from cli.terminal.object_name import cluster_name, namespaced_name


@pytest.fixture
def verb() -> click.Group:
    """`koord why pod|eviction|node|reservation` that print the name that they get."""
    group = click.Group("why")
    for kind in ("pod", "eviction"):
        group.add_command(click.command(kind)(namespaced_name(lambda **options: click.echo(options["name"]))))
    for kind in ("node", "quota", "reservation"):
        group.add_command(click.command(kind)(cluster_name()(lambda **options: click.echo(options["name"]))))
    return group


def run(verb: click.Group, words: str) -> Any:
    return CliRunner().invoke(verb, words.split(), prog_name="koord why")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("pod pod/web", "default/web"),
        ("pod pods/web -n shop", "shop/web"),
        ("pod -n shop po/web", "shop/web"),
        ("pod pod/shop/web", "shop/web"),
        ("pod shop/web", "shop/web"),
        ("pod pod/web -n pod", "pod/web"),
        ("eviction pod/web", "default/web"),
        ("eviction eviction/web", "default/web"),
        ("node node/n1", "n1"),
        ("node n1", "n1"),
        ("node n1 -n shop", "n1"),
        ("quota team -n shop", "team"),
        ("quota shop/team", "team"),
        ("quota eq/team", "team"),
        ("reservation pod/shop/web", "pod/shop/web"),
        ("reservation po/shop/web", "pod/shop/web"),
        ("reservation reservation/pod/shop/web", "pod/shop/web"),
    ],
)
def test_a_name_with_the_kind_of_the_command_is_the_name_alone(verb: click.Group, words: str, name: str) -> None:
    result = run(verb, words)
    assert (result.exit_code, result.stdout) == (0, f"{name}\n"), result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pod gang/train", "gang/train is a gang, and `koord why pod` takes a pod; a pod in the namespace gang: train -n gang"),
        ("eviction pg/db", "pg/db is a gang, and `koord why eviction` takes the name of a pod"),
        ("node pod/web", "pod/web is a pod, and `koord why node` takes a node"),
        ("reservation pod/web", "pod/web is a pod, and `koord why reservation` takes a reservation"),
    ],
)  # fmt: skip
def test_another_kind_is_wrong_usage_with_the_way_to_name_its_namespace(
    verb: click.Group, words: str, message: str
) -> None:
    result = run(verb, words)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_names_outside_of_a_verb_are_left_as_they_are() -> None:
    with click.Context(click.Command("login"), info_name="login"):
        assert without_kind("pod/web") == "pod/web"


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("node n1 -n shop", "a node has no namespace; 'shop' has no effect"),
        ("quota team -n shop", "quota names count in all namespaces; 'shop' has no effect"),
        ("quota shop/team", "quota names count in all namespaces; 'shop' has no effect"),
    ],
)
def test_a_namespace_of_a_kind_without_one_is_accepted_with_a_note(verb: click.Group, words: str, note: str) -> None:
    assert run(verb, words).stderr == f"koord: {note}\n"
