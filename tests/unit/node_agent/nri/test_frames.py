"""Frames of NRI connections, in whatever pieces the socket delivers them."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.node_agent.nri.frames import (
    MAX_MESSAGE,
    MAX_PART,
    PLUGIN_CONNECTION,
    REQUEST,
    RESPONSE,
    RUNTIME_CONNECTION,
    BadFrame,
    Frame,
    FrameReader,
    encode,
)

FRAMES = st.builds(
    Frame,
    st.sampled_from([PLUGIN_CONNECTION, RUNTIME_CONNECTION]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([REQUEST, RESPONSE]),
    st.binary(max_size=3 * MAX_PART),
)


@given(st.lists(FRAMES, max_size=5), st.lists(st.integers(0, 20_000), max_size=12))
def test_frames_arrive_whole_wherever_the_socket_cuts_them(frames: list[Frame], cuts: list[int]) -> None:
    data = b"".join(map(encode, frames))
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    reader = FrameReader()
    found = [frame for begin, end in itertools.pairwise(places) for frame in reader.feed(data[begin:end])]
    assert found == frames


def test_the_bytes_of_a_frame_are_those_of_the_protocol() -> None:
    assert encode(Frame(RUNTIME_CONNECTION, 1, REQUEST, b"xy")) == bytes.fromhex("00000002 0000000c 00000002 00000001 01 00") + b"xy"  # fmt: skip


def test_no_part_is_longer_than_containerd_reads_at_once() -> None:
    data, at, lengths = encode(Frame(PLUGIN_CONNECTION, 3, RESPONSE, bytes(10_000))), 0, []
    while at < len(data):
        lengths.append(struct.unpack_from(">II", data, at)[1])
        at += 8 + lengths[-1]
    assert lengths == [MAX_PART, MAX_PART, 10_010 - 2 * MAX_PART]


def test_connections_that_nobody_opened_are_passed_over() -> None:
    reader = FrameReader()
    foreign = struct.pack(">II", 9, 3) + b"abc"
    frame = Frame(PLUGIN_CONNECTION, 1, REQUEST, b"z")
    assert list(reader.feed(foreign + encode(frame))) == [frame]


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">II", 1, MAX_MESSAGE + 11),
        struct.pack(">II", 1, 10) + struct.pack(">IIBB", MAX_MESSAGE + 1, 1, 1, 0),
    ],
)
def test_lengths_beyond_the_protocols_bounds_end_the_connection(data: bytes) -> None:
    with pytest.raises(BadFrame, match="are allowed"):
        list(FrameReader().feed(data))


def test_a_message_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(BadFrame):
        encode(Frame(PLUGIN_CONNECTION, 1, RESPONSE, bytes(MAX_MESSAGE + 1)))
