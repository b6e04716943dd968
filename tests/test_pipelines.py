"""Clients that write a whole pipeline before they read the first reply, as most clients do. Every reply comes, in order."""

import contextlib
import threading
import time

import pytest

from conftest import TIMEOUT_S

# Most bytes of a pipeline that a client writes before it reads. Redis and Valkey take it, so a node must.
WRITTEN_BYTES_MAX = 24 << 20


def command(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def bulk(value):
    return b"$-1\r\n" if value is None else b"$%d\r\n%s\r\n" % (len(value), value)


def array(values):
    return b"*%d\r\n" % len(values) + b"".join(map(bulk, values))


def read_all(stream, wanted):
    """Reads as many bytes as wanted, and says which of the replies is the first that is wrong."""
    length, got = sum(map(len, wanted)), bytearray()
    with contextlib.suppress(TimeoutError, ConnectionError):
        while len(got) < length and (part := stream.recv(1 << 20)):
            got += part
    if got == b"".join(wanted):
        return
    at = 0
    for number, reply in enumerate(wanted):
        here = bytes(got[at : at + len(reply)])
        assert here == reply, f"reply {number} of {len(wanted)}: {here[:80]!r} instead of {reply[:80]!r}; {len(got)} bytes of {length} came"
        at += len(reply)


def write_then_read(stream, commands, wanted, pause_s=0.0):
    """Writes all commands before it reads anything."""
    stream.sendall(b"".join(commands))
    time.sleep(pause_s)
    read_all(stream, wanted)


def values(rng, lengths):
    return {f"pipe:{rng.randrange(1 << 40)}:{n}": rng.randbytes(length) for n, length in enumerate(lengths)}


# Counts of GET and of SET, and the bytes of a value.
@pytest.mark.parametrize("gets, sets, length", [(1_000, 500, 10_000), (200, 100, 50_000), (200_000, 0, 1_000)])
@pytest.mark.parametrize("node", [0, 1])
def test_a_stock_client_sends_its_pipeline_before_it_reads(cluster, rng, gets, sets, length, node):
    client = cluster.client(node, decode_responses=False)
    ((key, value),) = values(rng, [length]).items()
    client.set(key, value)
    pipeline = client.pipeline(transaction=False)
    for _ in range(gets):
        pipeline.get(key)
    for n in range(sets):
        pipeline.set(f"{key}:{n}", value)
    replies = pipeline.execute()
    assert replies[:gets] == [value] * gets and replies[gets:] == [True] * sets
    client.delete(*[f"{key}:{n}" for n in range(sets)], key)


@pytest.mark.parametrize("offset", [0, 1_000], ids=["any", "cluster"])
def test_long_replies_and_long_values_alternate(cluster, rng, offset):
    old, new = (rng.randbytes(500_000) for _ in range(2))
    for node in range(cluster.nodes):
        key = f"pipe:alternate:{offset}:{node}"
        with cluster.socket(node, offset) as stream:
            stream.sendall(command("SET", key, old))
            if stream.recv(5) != b"+OK\r\n":
                # Another node has the key, and the cluster port says so.
                assert offset
                continue
            commands, wanted = [], []
            for n in range(40):
                commands += [command("GET", key), command("SET", key, new if n % 2 == 0 else old)]
                wanted += [bulk(old if n % 2 == 0 else new), b"+OK\r\n"]
            write_then_read(stream, commands, wanted)
        cluster.client(node).delete(key) if not offset else None


@pytest.mark.parametrize(
    "first, others",
    [(3 << 20, [(1 << 20) - 1]), (3 << 20, [60_000] * 30), (9_000_000, [500] * 3_000), (1 << 20, [(1 << 20) - 1] * 12)],
    ids=["one", "some", "many", "long"],
)
@pytest.mark.parametrize("pause_s", [0.0, 2.0], ids=["at-once", "late"])
def test_a_long_reply_is_not_held_up_by_the_replies_behind_it(start_cluster, rng, first, others, pause_s):
    cluster = start_cluster(memory="256mb")
    known = values(rng, [first, *others])
    client = cluster.client(decode_responses=False)
    for key, value in known.items():
        client.set(key, value)
    for node in range(3):
        with cluster.socket(node) as stream:
            write_then_read(stream, [command("GET", key) for key in known], [bulk(v) for v in known.values()], pause_s)


def test_an_mget_read_value_by_value_is_not_held_up_by_the_replies_behind_it(start_cluster, rng):
    cluster = start_cluster(memory="256mb")
    known = values(rng, [4_000_000] * 9 + [60_000] * 40)
    client = cluster.client(decode_responses=False)
    for key, value in known.items():
        client.set(key, value)
    keys = list(known)
    long, short = keys[:9], keys[9:]
    commands = [command("GET", key) for key in short] + [command("MGET", *long)] + [command("GET", key) for key in short] * 2
    wanted = [bulk(known[key]) for key in short] + [array([known[key] for key in long])] + [bulk(known[key]) for key in short] * 2
    for node in range(3):
        with cluster.socket(node) as stream:
            write_then_read(stream, commands, wanted)


class Model:
    """Draws commands and says what the replies must be."""

    LENGTHS = [0, 10, 500, 500, 5_000, 60_000, 70_000, 500_000, (1 << 20) - 1, 1 << 20, 3 << 20]

    def __init__(self, rng, prefix):
        self.rng, self.known = rng, {}
        self.keys = [f"{prefix}:{n}" for n in range(12)]

    def value(self):
        return self.rng.randbytes(self.rng.choice(self.LENGTHS))

    def draw(self):
        key, known = self.rng.choice(self.keys), self.known
        match self.rng.choice(["get"] * 6 + ["set"] * 4 + ["mget", "append", "range", "del", "getset", "ping"]):
            case "get":
                return command("GET", key), bulk(known.get(key))
            case "set":
                known[key] = self.value()
                return command("SET", key, known[key]), b"+OK\r\n"
            case "mget":
                some = self.rng.sample(self.keys, 3)
                return command("MGET", *some), array([known.get(key) for key in some])
            case "append":
                more = self.rng.randbytes(self.rng.choice([1, 500, 70_000]))
                known[key] = known.get(key, b"") + more
                return command("APPEND", key, more), b":%d\r\n" % len(known[key])
            case "range":
                return command("GETRANGE", key, 100, 100_000), bulk(known.get(key, b"")[100:100_001])
            case "del":
                return command("DEL", key), b":%d\r\n" % (known.pop(key, None) is not None)
            case "getset":
                old, known[key] = known.get(key), self.value()
                return command("GETSET", key, known[key]), bulk(old)
            case "ping":
                return b"PING\r\n", b"+PONG\r\n"
        raise AssertionError("no such command")


@pytest.mark.parametrize("node", range(3))
def test_random_pipelines_of_all_lengths_are_answered_in_order(start_cluster, rng, node):
    cluster = start_cluster(memory="256mb")
    model = Model(rng, f"pipe:random:{node}")
    with cluster.socket(node) as stream:
        for _ in range(12):
            commands, wanted, written = [], [], 0
            for _ in range(rng.choice([10, 100, 400])):
                request, reply = model.draw()
                commands.append(request)
                wanted.append(reply)
                written += len(request)
                if written > WRITTEN_BYTES_MAX - (4 << 20):
                    break
            write_then_read(stream, commands, wanted, rng.choice([0.0, 0.0, 0.5]))


def test_others_are_served_while_a_client_does_not_read(cluster, rng):
    ((key, value),) = values(rng, [50_000]).items()
    client = cluster.client(decode_responses=False)
    client.set(key, value)
    with cluster.socket() as stream:
        sender = threading.Thread(target=stream.sendall, args=(command("GET", key) * 200 + command("SET", key, value) * 200,))
        sender.start()
        sender.join(TIMEOUT_S)
        assert not sender.is_alive(), "the node has stopped reading"
        for _ in range(50):
            assert client.get(key) == value
        read_all(stream, [bulk(value)] * 200 + [b"+OK\r\n"] * 200)
