"""Whatever bytes arrive: a decoder returns a value or raises its declared error, and nothing else."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.decoders import DECODERS
from tests.property.mutations import mutated

DEEP = 50_000

SHAPES = (
    b"", b"\x00", b"\xff\xfe", b"null", b"[]", b"{}", b'"', b"0", b"1e999", b"-" * 9, b'{"a":' * DEEP, b"[" * DEEP,
    b"\x91" * DEEP, b'{"x":' * 5_000 + b"1" + b"}" * 5_000, b'"\xc3\x28"', b'{"metadata":{"name":"\xed\xa0\x80"}}',
    b'{"metadata":{"name":"q"},"spec":"0-9"}', b'{"metadata":{"name":"q"},"spec":{"max":[1]}}',
    b'{"apiVersion":"v1","kind":"Pod","\xd0":0,"spec":{"containers":[{"resources":{"requests":{"cpu":1}}}]}}',
    b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"patch":{"metadata":0}}',
    b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"patch":{"metadata":null}}',
)  # fmt: skip
"""Messages that no sender of ours makes: empty, cut, nested too deeply, no UTF-8."""


def check(name: str, data: bytes) -> None:
    """Decodes; any error but the declared one fails the test."""
    decoder = DECODERS[name]
    try:
        decoder.decode(data)
    except decoder.errors:
        return


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_accepts_its_own_messages(name: str) -> None:
    for message in DECODERS[name].accepted:
        DECODERS[name].decode(message)


@pytest.mark.parametrize("name", DECODERS)
def test_absurd_messages_raise_the_declared_error(name: str) -> None:
    for shape in SHAPES:
        check(name, shape)
    for message in DECODERS[name].accepted:
        for place in range(0, len(message), max(1, len(message) // 40)):
            check(name, message[:place])
        for shape in (b'{"x":' * 3_000, b"[" * 3_000):
            middle = message.find(b"{", 1)
            check(name, message[: max(middle, 0)] + shape + message[max(middle, 0) :])


@given(st.integers(0, 2**32))
def test_changed_messages_raise_the_declared_error(seed: int) -> None:
    random = Random(seed)
    for name, decoder in DECODERS.items():
        check(name, mutated(random, decoder.accepted))


@given(st.binary(max_size=200))
def test_any_bytes_raise_the_declared_error(data: bytes) -> None:
    for name in DECODERS:
        check(name, data)
