"""Changes of messages as a fuzzer makes them: flipped bytes, other values, cut, repeated and joined parts."""

import re
from collections.abc import Sequence
from random import Random

VALUES = (
    b"null", b"true", b"0", b"-1", b"1.5", b"1e400", b"9223372036854775808", b"-9223372036854775809", b'""', b'"\\ud800"',
    b"[]", b"{}", b"[null]", b'{"":null}', b'"1Ei"', b'"-1"', b'"1e99999"', b'"0-999999999"', b'"9999-12-31T23:59:59Z"',
)  # fmt: skip
"""JSON values at the edges of what a field may be."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?|true|false|null|\{\}|\[\]')
MOST = 4


def mutated(random: Random, messages: Sequence[bytes]) -> bytes:
    """Returns one of the messages after one to `MOST` changes."""
    data = random.choice(messages)
    for _ in range(random.randint(1, MOST)):
        data = random.choice(_CHANGES)(random, data)
    return data


def _value(random: Random, data: bytes) -> bytes:
    """Replaces a JSON value, or the name of a field, by another."""
    tokens = list(_TOKEN.finditer(data))
    if not tokens:
        return data
    token = random.choice(tokens)
    other = random.choice(VALUES) if random.random() < 0.7 else random.choice(tokens).group()
    return data[: token.start()] + other + data[token.end() :]


def _byte(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]


def _cut(random: Random, data: bytes) -> bytes:
    first, last = sorted((random.randrange(len(data) + 1), random.randrange(len(data) + 1)))
    return data[:first] + data[last:]


def _repeat(random: Random, data: bytes) -> bytes:
    first, last = sorted((random.randrange(len(data) + 1), random.randrange(len(data) + 1)))
    return data[:last] + data[first:last] + data[last:]


_CHANGES = (_value, _value, _value, _byte, _cut, _repeat)
