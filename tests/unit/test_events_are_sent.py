"""Each declared event type, and each action of node agents, is made by some part of the product."""

import ast
from collections.abc import Iterator
from pathlib import Path

from shared.agents import actions
from shared.agents.actions import Action
from shared.events import EVENT_TYPES

ROOT = Path(__file__).parents[2]


def made_in(folders: tuple[str, ...]) -> Iterator[str]:
    """Yields names of what is called, or kept to be called later, apart from patterns, annotations and type tests."""
    for folder in folders:
        for file in (ROOT / folder).rglob("*.py"):
            if file.is_relative_to(ROOT / "shared" / "events"):
                continue
            yield from _made(ast.parse(file.read_text()))


def _made(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _named(node.func)
            if isinstance(node.func, ast.Name) and node.func.id not in {"isinstance", "issubclass", "Codec"}:
                for each in (*node.args, *(keyword.value for keyword in node.keywords)):
                    yield from _named(each)
        elif isinstance(node, ast.IfExp):
            yield from (*_named(node.body), *_named(node.orelse))


def _named(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.IfExp):
        yield from (*_named(node.body), *_named(node.orelse))


def test_every_event_type_is_made_somewhere() -> None:
    made = set(made_in(("services", "shared", "cli")))
    assert {kind.__name__ for kind in EVENT_TYPES.values()} - made == set()


def test_every_action_is_made_by_the_node_agent() -> None:
    kinds = {kind.__name__ for kind in vars(actions).values() if isinstance(kind, type) and issubclass(kind, Action)}
    assert kinds - {Action.__name__} - set(made_in(("services/node_agent",))) == set()


def test_a_type_that_is_only_matched_counts_as_not_made() -> None:
    source = (
        "match event:\n    case PodKilled(pod=pod):\n        pass\nisinstance(event, PodKilled)\nCodec(PodKilled)\n"
    )
    assert "PodKilled" not in set(_made(ast.parse(source)))
    assert "PodKilled" in set(_made(ast.parse("Draft(PodKilled(pod=pod))")))
