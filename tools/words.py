"""Rejects private words where the field has a term: in names, in docstrings and comments, and in Markdown.

    python -m tools.words [path ...]      all tracked files of the repository, or those below the paths

Names are the identifiers that a module defines, and the names of files. Prose is docstrings, comments, and Markdown
outside of code. Each finding names the place, the word, and the plain term.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tools.word_list import IDIOMS, OPENINGS, STEMS

MAX_COLUMNS = 120
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_INLINE_CODE = re.compile(r"`[^`]*`|\]\([^)]*\)|<[^>]*>")
_LONG_MARKDOWN = re.compile(r"^\s*(\||>|    )|\]\(|https?://")


class Finding(NamedTuple):
    """A word to replace, and where it stands."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def in_name(name: str) -> Iterator[str]:
    """Yields a text for each part of an identifier that is a private word: `_kin_of` has the parts `kin` and `of`."""
    for part in _PARTS.findall(name):
        if plain := STEMS.get(part.lower()):
            yield f"name {name!r} has {part!r}; the field's term is: {plain}"


def in_prose(text: str) -> Iterator[str]:
    """Yields a text for each idiom in one line of prose; code between backticks does not count."""
    for idiom, plain in IDIOMS:
        if found := idiom.search(_INLINE_CODE.sub(" ", text)):
            yield f"{found[0]!r}; write instead: {plain}"


def in_python(path: Path, source: str) -> Iterator[Finding]:
    """Yields what a module's names, docstrings and comments have to replace."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        yield from (Finding(path, line, text) for line, name in _defined(node) for text in in_name(name))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _docstring(path, node)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type:", "#!")):
            yield from (Finding(path, token.start[0], text) for text in in_prose(token.string))


def in_markdown(path: Path, source: str) -> Iterator[Finding]:
    """Yields what a page has to replace, and its lines of prose that are too long."""
    fenced = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if fenced or line.startswith("    "):
            continue
        yield from (Finding(path, number, text) for text in in_prose(line))
        if len(line) > MAX_COLUMNS and not _LONG_MARKDOWN.search(line):
            yield Finding(path, number, f"{len(line)} columns; lines of prose end at {MAX_COLUMNS}")


def _defined(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield node.lineno, name
        case ast.arg(arg=name):
            yield node.lineno, name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield node.lineno, name
        case ast.alias(asname=str(name)):
            yield node.lineno, name


def _docstring(
    path: Path, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[Finding]:
    text = ast.get_docstring(node, clean=False)
    if text is None:
        return
    first = node.body[0].lineno
    if opening := OPENINGS.match(text.strip()):
        yield Finding(
            path, first, f"a docstring opens with {opening[0]!r}; begin with a verb or with the thing that it is"
        )
    for offset, line in enumerate(text.splitlines()):
        yield from (Finding(path, first + offset, found) for found in in_prose(line))
        if len(line) > MAX_COLUMNS:
            yield Finding(path, first + offset, f"{len(line)} columns; lines of prose end at {MAX_COLUMNS}")


def findings(paths: list[str]) -> Iterator[Finding]:
    """Yields the findings of all tracked modules and pages below the paths.

    Recorded cases and generated files do not count.
    """
    command = ["git", "ls-files", "--", *paths]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603  paths of our own caller
    for path in map(Path, listed.splitlines()):
        if not path.is_file() or path.name.startswith("word_list"):
            continue
        if path.suffix == ".py":
            yield from (Finding(path, 1, text) for part in path.with_suffix("").parts for text in in_name(part))
            yield from in_python(path, path.read_text())
        elif path.suffix == ".md":
            yield from in_markdown(path, path.read_text())


def main() -> int:
    """Prints the findings. Returns 1 if there are any."""
    found = [str(finding) for finding in findings(sys.argv[1:])]
    sys.stdout.writelines(f"{line}\n" for line in found)
    if found:
        sys.stderr.write(f"{len(found)} places with private words; the terms are in docs/vocabulary.md\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
