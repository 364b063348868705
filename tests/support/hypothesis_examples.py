"""The number of random examples of a property: a quarter in `make unit` and `make test`, all of them in `make soak`."""

import os

VARIABLE = "KOORD_EXAMPLES"
"""`all` for the long form."""


def examples(most: int) -> int:
    """Returns the number of examples of a property that has `most` in its long form; the short form has 20 at least."""
    return most if os.environ.get(VARIABLE) == "all" else max(most // 4, min(most, 20))
