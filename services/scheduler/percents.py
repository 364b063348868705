"""Whole percents over arrays: the division that scores are made of."""

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]

_EXACT = 1 << 53
"""Whole numbers below it are floats."""


def percents(part: Int64, whole: Int64) -> Int64:
    """floor(100 * part / whole), elementwise and exact.

    Floats divide three times as fast as integers. A quotient that lies below a whole number lies below it by 1/whole at least,
    and rounding moves it by at most 100 * part / whole * 2^-53: less than that while 100 * part < 2^53. Beyond, integers divide.

    Args:
        part: not negative.
        whole: above 0.
    """
    product = part * 100
    if product.size and int(product.max()) >= _EXACT:
        return product // whole
    return (product / whole).astype(np.int64)
