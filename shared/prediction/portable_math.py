"""Powers in elementary operations, with the same bits on every machine, equal to upstream's runtime.

Source: FreeBSD msun e_exp.c for the reduction and the polynomial; binary powers for whole exponents.
"""

import math

_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_P = (
    1.66666666666666657415e-01,
    -2.77777777770155933842e-03,
    6.61375632143793436117e-05,
    -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)
_LEAST, _MOST = -1074.0, 1024.0


def exp2(x: float) -> float:
    """Returns 2 to a power; 0 below the smallest double, infinite above the largest."""
    if x < _LEAST:
        return 0.0
    if x >= _MOST:
        return math.inf
    whole = int(x + 0.5) if x > 0 else int(x - 0.5) if x < 0 else 0
    rest = x - whole
    high, low = rest * _LN2_HIGH, -rest * _LN2_LOW
    reduced = high - low
    square = reduced * reduced
    c = reduced - square * (_P[0] + square * (_P[1] + square * (_P[2] + square * (_P[3] + square * _P[4]))))
    return math.ldexp(1 - ((low - (reduced * c) / (2 - c)) - high), whole)


def power(base: float, exponent: int) -> float:
    """Returns a positive number to a whole power that is not negative."""
    result, result_exponent = 1.0, 0
    fraction, binary = math.frexp(base)
    while exponent:
        if exponent & 1:
            result *= fraction
            result_exponent += binary
        fraction *= fraction
        binary <<= 1
        if fraction < 0.5:
            fraction += fraction
            binary -= 1
        exponent >>= 1
    return math.ldexp(result, result_exponent)
