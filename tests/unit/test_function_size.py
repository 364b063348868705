"""Size limits of the services' code: a function fits on a screen, and its arguments can be read in one go."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_LINES, MOST_ARGUMENTS = 60, 12


def functions(folder: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def arguments_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return len([name for name in given if name not in ("self", "cls")])


def test_no_function_of_a_service_is_longer_than_60_lines() -> None:
    assert [name for name, node in functions("services") if lines_of(node) > MOST_LINES] == []


def test_no_function_of_a_service_takes_more_than_12_arguments() -> None:
    assert [name for name, node in functions("services") if arguments_of(node) > MOST_ARGUMENTS] == []


def test_no_import_among_services_and_what_they_share_is_for_types_alone() -> None:
    """Such an import hides a cycle from the import contracts: what both modules need belongs into a lower one."""
    found = [
        f"{path.relative_to(ROOT)}:{inner.lineno}"
        for folder in ("services", "shared")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
        if isinstance(inner, ast.ImportFrom) and (inner.module or "").partition(".")[0] in ("services", "shared")
    ]
    assert found == []
