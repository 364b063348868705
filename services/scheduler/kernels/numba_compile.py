"""Compilation of functions over arrays to machine code: by numba, once per machine; the result is kept in a cache
folder.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba

Number = Any
"""A whole number inside a compiled function: an int64."""

P = ParamSpec("P")
R = TypeVar("R")


def _forget_stale(folder: Path) -> None:
    """Drops machine code that is older than a source of this folder.

    numba compares only the file of a function itself, not the files of the functions that it calls.
    """
    changed = max(source.stat().st_mtime for source in folder.glob("*.py"))
    for index in (folder / "__pycache__").glob("*.nbi"):
        with contextlib.suppress(OSError):  # another process did so, or the folder is read-only
            if index.stat().st_mtime < changed:
                index.unlink()


_forget_stale(Path(__file__).parent)


def compiled(signature: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compiles a function for one signature, so that an array of another type or layout is an error and not a second
    compilation.

    The machine code is kept beside the source, or below NUMBA_CACHE_DIR, or in the user's cache folder: the first of
    them that can be written. Where none can, each process compiles for itself, which takes some seconds.
    """

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        options: dict[str, Any] = {"error_model": "numpy", "nogil": True}
        try:
            ready = numba.njit(signature, cache=True, **options)(function)
        except RuntimeError:  # no writable cache folder
            ready = numba.njit(signature, **options)(function)
        return cast("Callable[P, R]", ready)

    return wrap


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compiles a function into each compiled caller."""
    return cast("Callable[P, R]", numba.njit(inline="always", error_model="numpy")(function))


def part(function: Callable[P, R]) -> Callable[P, R]:
    """Compiles a longer function that compiled ones call, once per types of arguments."""
    return cast("Callable[P, R]", numba.njit(error_model="numpy", nogil=True)(function))
