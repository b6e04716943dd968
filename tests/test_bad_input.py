"""Input that no client should send: it gives a clear error, changes nothing, and does not affect other clients."""

import struct

import pytest

from conftest import TIMEOUT_S
from greeting import Greeting, known

# The bytes sent, and the error that must come back.
MALFORMED = {
    "multibulk length is no number": (b"*x\r\n", b"-ERR Protocol error"),
    "too many arguments": (b"*1000000000\r\n", b"-ERR Protocol error: invalid multibulk length"),
    "negative bulk length": (b"*1\r\n$-5\r\n", b"-ERR Protocol error: invalid bulk length"),
    "bulk length past the limit": (b"*2\r\n$3\r\nGET\r\n$99999999999\r\n", b"-ERR Protocol error: invalid bulk length"),
    "not a bulk string": (b"*1\r\n:4\r\nPING\r\n", b"-ERR Protocol error: expected '$'"),
    "line without end": (b"*" + b"1" * 100_000, b"-ERR Protocol error"),
    "inline without end": (b"a" * 100_000, b"-ERR Protocol error: too big inline request"),
    "unbalanced quotes": (b'GET "open\r\n', b"-ERR Protocol error: unbalanced quotes"),
}


def everything(stream):
    """Reads all bytes until the other side closes."""
    received = b""
    while True:
        try:
            part = stream.recv(65_536)
        except ConnectionResetError:
            return received
        if not part:
            return received
        received += part


@pytest.mark.parametrize("name", MALFORMED)
@pytest.mark.parametrize("offset", [0, 1_000])
def test_malformed_resp_is_an_error_and_the_end_of_the_connection(cluster, name, offset):
    sent, error = MALFORMED[name]
    with cluster.socket(1, offset) as stream:
        stream.sendall(b"PING\r\n" + sent)
        received = everything(stream)
    assert received.startswith(b"+PONG\r\n" + error), received[:200]
    assert received.count(b"\r\n") == 2, "there must be exactly one error"
    assert cluster.client(1).ping()


def test_a_command_in_single_bytes_is_one_command(cluster):
    with cluster.socket() as stream:
        for byte in b"*3\r\n$3\r\nSET\r\n$9\r\nbad:bytes\r\n$2\r\nok\r\n":
            stream.sendall(bytes([byte]))
        assert stream.recv(100) == b"+OK\r\n"
    assert cluster.client().get("bad:bytes") == "ok"


def test_half_a_command_changes_nothing(cluster):
    client = cluster.client()
    client.set("bad:half", "before")
    with cluster.socket() as stream:
        stream.sendall(b"*3\r\n$3\r\nSET\r\n$8\r\nbad:half\r\n$5\r\naft")
    assert client.get("bad:half") == "before"


def test_a_key_above_the_limit_is_refused(cluster):
    with cluster.socket() as stream:
        key = b"k" * 70_000
        stream.sendall(b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$1\r\nv\r\n" % (len(key), key))
        assert stream.recv(100).startswith(b"-ERR"), "there must be an error"
    assert cluster.client().ping()


def frame(kind, body, crc=None, length=None):
    """A frame between nodes, as described in docs/formats/peer.md."""
    # Of list 0, x 0, epoch 0.
    rest = bytes([kind, 0, 0, 0]) + body
    crc = crc32c(rest) if crc is None else crc
    return num(len(rest) if length is None else length) + struct.pack("<I", crc) + rest


def num(number):
    out = b""
    while number >= 128:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def hello(cluster=1, to_node=2, versions=(1, 1)):
    """A well-formed hello of node 0."""
    return frame(1, struct.pack("<QHQHQBHHQQ", cluster, 0, 1, to_node, 1, 0, *versions, 0, 1))


BAD_FRAMES = {
    "a client's command": b"*1\r\n$4\r\nPING\r\n" * 10,
    "length below a header": frame(1, b"", length=0),
    "length past the limit": frame(1, b"", length=1 << 31),
    "wrong checksum": frame(1, b"\0" * 60, crc=1),
    "unknown kind": frame(200, b"\0" * 60),
    "hello with a short body": frame(1, b"\0" * 3),
    "hello with a long body": frame(1, b"\x07" * 80),
    "hello of another cluster": hello(),
    "hello of another version": hello(versions=(7, 9)),
    "hello for another node": hello(to_node=4),
    "delta before hello": frame(10, b"\0" * 60),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_bad_peer_is_disconnected(cluster, name):
    with cluster.peer_socket(2) as stream:
        stream.settimeout(TIMEOUT_S)
        known(stream, Greeting(node=0, incarnation=1, to_node=2), cluster.secret())
        stream.sendall(BAD_FRAMES[name])
        assert everything(stream) == b"", "a bad peer must get no answer"
    client = cluster.client(2)
    assert client.set("bad:peer", name) and client.get("bad:peer") == name
    assert cluster.process.poll() is None


def test_a_truncated_frame_and_then_silence_is_disconnected(cluster):
    with cluster.peer_socket(2) as stream:
        known(stream, Greeting(node=0, incarnation=1, to_node=2), cluster.secret())
        stream.sendall(frame(1, b"\0" * 60)[:20])
        assert everything(stream) == b""


def test_strangers_at_the_coordinator_are_disconnected(cluster):
    for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\0", struct.pack("<II", 5, 0) + b"hello"):
        with cluster.coordinator_socket() as stream:
            stream.sendall(sent)
            everything(stream)
    assert cluster.status()["nodes"]
