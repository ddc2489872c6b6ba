"""Messages between judge and worker: whole, in time, and never more than JSON."""

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nvfp4.records.channel import (
    BadMessage,
    Channel,
    ChannelClosed,
    ChannelTimeout,
    longest_message_bytes,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    """A channel and the bare socket at its other end."""
    ours, theirs = socket.socketpair()
    channel = Channel(ours, takes_fds=True)
    yield channel, theirs
    channel.close()
    theirs.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(st.text(), json_values, max_size=4), min_size=1, max_size=4))
def test_messages_arrive_as_they_were_sent(
    ends: tuple[Channel, socket.socket], messages: list[dict[str, object]]
) -> None:
    channel, theirs = ends
    sender = Channel(theirs)
    for message in messages:
        sender.send(message)
    assert [channel.receive(1) for _ in messages] == [(message, None) for message in messages]


def test_a_descriptor_travels_with_its_message(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    fd = os.memfd_create("contents")
    os.write(fd, b"shared")
    Channel(theirs).send({"op": "case"}, fd)
    os.close(fd)
    message, received = channel.receive(1)
    assert message == {"op": "case"}
    assert received is not None
    assert os.pread(received, 10, 0) == b"shared"
    os.close(received)


def test_a_message_in_pieces_is_put_together(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.sendall(b'{"id"')

    def finish() -> None:
        theirs.sendall(b": 7}\n{")

    threading.Timer(0.05, finish).start()
    assert channel.receive(2) == ({"id": 7}, None)


def test_silence_ends_at_the_time_limit(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.sendall(b'{"never": ')
    start = time.monotonic()
    with pytest.raises(ChannelTimeout):
        channel.receive(0.1)
    assert 0.1 <= time.monotonic() - start < 2


def test_drops_of_bytes_do_not_put_the_time_limit_off(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.02):
            theirs.sendall(b" ")

    thread = threading.Thread(target=drip)
    thread.start()
    start = time.monotonic()
    try:
        with pytest.raises(ChannelTimeout):
            channel.receive(0.2)
    finally:
        stop.set()
        thread.join()
    assert time.monotonic() - start < 2


def test_a_closed_connection_is_noticed_on_both_ways(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.close()
    with pytest.raises(ChannelClosed):
        channel.receive(1)
    with pytest.raises(ChannelClosed):
        channel.send({"op": "call"})


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"hello\n", "not JSON"),
        (b"[1, 2]\n", "not a JSON object"),
        (b"null\n", "not a JSON object"),
        (b"\xff\xfe\n", "not JSON"),
        (b"\n", "not JSON"),
        (b"[" * 100_000 + b"\n", "not JSON"),
    ],
)
def test_nonsense_is_refused(ends: tuple[Channel, socket.socket], data: bytes, why: str) -> None:
    channel, theirs = ends
    theirs.sendall(data)
    with pytest.raises(BadMessage, match=why):
        channel.receive(1)


def test_an_endless_message_is_refused_and_not_kept(
    ends: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = ends

    def flood() -> None:
        sent = 0
        while sent < 4 * longest_message_bytes:
            try:
                sent += theirs.send(b"x" * 65536)
            except OSError:
                return

    thread = threading.Thread(target=flood)
    thread.start()
    with pytest.raises(BadMessage, match="longer than"):
        channel.receive(10)
    channel.close()
    thread.join(10)
    assert not thread.is_alive()
