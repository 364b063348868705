"""How a function over arrays becomes machine code: numba, once per machine; the result is kept in a cache folder."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba

Number = Any
"""A whole number inside a compiled function: an int64, whatever Python would make of it."""

P = ParamSpec("P")
R = TypeVar("R")


def _forget_stale(folder: Path) -> None:
    """Drop machine code that was kept before a source of this folder changed: numba looks at the file of a function alone, not at those whose
    functions it calls.
    """
    changed = max(source.stat().st_mtime for source in folder.glob("*.py"))
    for index in (folder / "__pycache__").glob("*.nbi"):
        with contextlib.suppress(OSError):  # another process did so, or it is not ours to do
            if index.stat().st_mtime < changed:
                index.unlink()


_forget_stale(Path(__file__).parent)


def compiled(signature: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a function for one signature, so that an array of another type or layout is an error and not a second compilation.

    The machine code is kept beside the source, or below NUMBA_CACHE_DIR, or in the user's cache folder: the first of them that can be
    written. Where none can, each process compiles for itself, which takes some seconds.
    """

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        options: dict[str, Any] = {"error_model": "numpy", "nogil": True}
        try:
            ready = numba.njit(signature, cache=True, **options)(function)
        except RuntimeError:  # no folder to keep it in
            ready = numba.njit(signature, **options)(function)
        return cast("Callable[P, R]", ready)

    return wrap


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """A function that compiled ones call: part of each of them."""
    return cast("Callable[P, R]", numba.njit(inline="always", error_model="numpy")(function))


def part(function: Callable[P, R]) -> Callable[P, R]:
    """A function that compiled ones call, of some length: compiled with each of them, once per kind of arguments."""
    return cast("Callable[P, R]", numba.njit(error_model="numpy", nogil=True)(function))
