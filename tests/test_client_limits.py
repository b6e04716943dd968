"""Clients that ask for too much: the node's memory stays bounded, other clients are served, and the replies come
completely and in order."""

import threading

import pytest

from conftest import TIMEOUT_S, Background, once_served, until

VALUE_BYTES = 64_000
KEYS = 24
# GETs whose replies are far more than a node may hold for one client.
GETS = 4_000
# Most bytes held for one client that does not read: replies here, replies on the way from other nodes, and buffers.
HELD_BYTES_MAX = 48 << 20


def resident(pids):
    """RSS of some processes in bytes."""
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            total += next(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))
    return total


def bulk(value):
    return b"$%d\r\n%s\r\n" % (len(value), value)


def read_exactly(stream, expected):
    """Reads the expected number of bytes and compares them."""
    at = 0
    while at < len(expected):
        part = stream.recv(min(1 << 20, len(expected) - at))
        assert part, f"the connection ended after {at} of {len(expected)} bytes"
        assert part == expected[at : at + len(part)], f"wrong bytes after {at}"
        at += len(part)


@pytest.mark.parametrize("port", ["any", "cluster"])
def test_a_client_that_does_not_read_is_not_answered_into_memory(start_cluster, rng, port):
    cluster = start_cluster()
    client = cluster.client(decode_responses=False)
    values = {}
    for n in range(KEYS * (1 if port == "any" else 6)):
        key = f"limit:{n}"
        values[key] = rng.randbytes(VALUE_BYTES)
        client.set(key, values[key])
    offset = 0
    if port == "cluster":
        # Keys of the first node only, because the cluster port does not forward.
        offset = 1_000
        strict = cluster.client(1_000, decode_responses=False)
        slots = [r for r in strict.execute_command("CLUSTER SLOTS") if r[2][1] == cluster.port + 1_000]
        own = lambda key: any(low <= strict.execute_command("CLUSTER KEYSLOT", key) <= high for low, high, _ in slots)
        values = {key: value for key, value in values.items() if own(key)}
        assert values
    order = [rng.choice(sorted(values)) for _ in range(GETS)]
    pids = list(cluster.pids().values())
    before = resident(pids)
    with cluster.socket(0, offset) as stream:
        sender = threading.Thread(target=stream.sendall, args=(b"".join(b"GET %s\r\n" % k.encode() for k in order),))
        sender.start()
        held = 0
        for n in range(400):
            key = sorted(values)[n % len(values)]
            assert client.get(key) == values[key], "other clients must be served"
            held = max(held, resident(pids) - before)
        print(f"{port}: {held >> 20} MiB held for a client that does not read")
        assert held < HELD_BYTES_MAX
        for key in order:
            read_exactly(stream, bulk(values[key]))
        sender.join(TIMEOUT_S)
        assert not sender.is_alive()
    # The memory is freed afterwards.
    until(lambda: resident(pids) - before < HELD_BYTES_MAX // 2, "memory to be given back")


class Flood(Background):
    """Sends PING until it is stopped, and then ECHO."""

    def __init__(self, stream):
        super().__init__()
        self.stream, self.pings = stream, 0

    def work(self):
        while not self.ending.is_set():
            self.stream.sendall(b"PING\r\n" * 10_000)
            self.pings += 10_000
        self.stream.sendall(b"ECHO end\r\n")


class Drain(Background):
    """Reads replies up to that of ECHO, and counts their bytes."""

    END = b"$3\r\nend\r\n"

    def __init__(self, stream):
        super().__init__()
        self.stream, self.bytes = stream, 0

    def work(self):
        tail = b""
        while tail != self.END:
            part = self.stream.recv(1 << 20)
            assert part, f"the connection ended after {self.bytes} bytes"
            self.bytes += len(part)
            tail = (tail + part)[-len(self.END) :]


def test_one_giant_pipeline_does_not_starve_the_others(start_cluster):
    cluster = start_cluster()
    with cluster.socket() as stream:
        flood, drain = Flood(stream), Drain(stream)
        flood.start()
        drain.start()
        client = cluster.client()
        until(lambda: drain.bytes or drain.broken, "the flood to be answered")
        for answered in range(10):
            assert once_served(lambda answered=answered: client.set("limit:modest", answered)), "others must be served meanwhile"
        flood.stop()
        drain.stop()
        assert drain.bytes == flood.pings * len(b"+PONG\r\n") + len(drain.END)


def test_clients_are_listed_with_their_addresses_and_ended_by_them(cluster):
    one, two = cluster.client(single_connection_client=True), cluster.client(single_connection_client=True)
    two.client_setname("second")
    address = "%s:%d" % two.connection._sock.getsockname()[:2]
    entry = next(c for c in one.client_list() if c["name"] == "second")
    assert entry["addr"] == address and entry["laddr"] == f"127.0.0.1:{cluster.port}"
    assert entry["id"] == str(two.client_id()) and entry["db"] == "0" and entry["cmd"] == "client|setname"
    assert two.client_info()["addr"] == address and two.client_getname() == "second"
    assert one.client_kill_filter(addr="127.0.0.1:1") == 0
    assert one.client_kill_filter(addr=address, laddr="127.0.0.1:1") == 0
    assert one.client_kill_filter(addr=address) == 1
    until(lambda: all(c["addr"] != address for c in one.client_list()), "the connection to be gone")
