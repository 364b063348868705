"""Looks whether the scheduler has compiled its passes on this machine; without numba, which takes a second to import."""

import os
from collections.abc import Mapping
from pathlib import Path

import services

PACKAGE = Path(next(iter(services.__path__)))

NOTE = "scheduler: the first start of an installation compiles its passes: some 20 s, and minutes where others work"


def is_due(env: Mapping[str, str], package: Path = PACKAGE) -> bool:
    """Returns True where the next start compiles: no machine code lies beside the sources.

    False where numba keeps it in another folder, in which that of other programs may lie too.
    """
    folder = package / "scheduler" / "kernels"
    if env.get("NUMBA_CACHE_DIR") or not os.access(folder, os.W_OK):
        return False
    return not any((folder / "__pycache__").glob("*.nbi"))
