"""Values from 1 MiB on are written as they come and read as the client takes them: no node holds one whole."""

import socket
import threading

import pytest
import redis

from conftest import TIMEOUT_S, is_refused, once_served, until
from test_large_values import bytes_of, is_owner, owner_of, parts_bytes, until_parts_are

MIB = 1 << 20
# Above the parts, a node may hold two pieces for each client, its buffers, and what the allocator keeps.
OVER_PARTS_MIB = 80


def peak_mib(cluster, node):
    """The most memory that the process of a node has had."""
    return cluster.client(node).info("memory")["used_memory_rss_peak"] // MIB


def head_of_set(key, size):
    return b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n" % (len(key), key, size)


def received(reader, size):
    """The next `size` bytes of a connection, and none behind them."""
    got = bytearray()
    while len(got) < size:
        some = reader.recv(min(MIB, size - len(got)))
        assert some, f"closed after {len(got)} bytes"
        got += some
    return bytes(got)


def once_sent(command):
    """What `command` returns, once it is not refused. On a busy machine this client may send a long value too slowly."""
    return once_served(command, lambda error: "it came more slowly than" in str(error) or is_refused(error))


@pytest.mark.timeout(1200)
def test_a_value_of_the_greatest_length_is_held_whole_by_no_node(start_cluster, rng):
    cluster = start_cluster(memory="512mb")
    size = 512 * MIB
    piece = rng.randbytes(MIB)
    value = piece * 512
    owner = owner_of(cluster, "{of}:source")
    for node in owner, (owner + 1) % cluster.nodes:
        # Its limit is for all bytes of a command together.
        client = cluster.client(node, decode_responses=False, socket_timeout=600)
        client.set("{of}:source", "before")
        assert once_sent(lambda client=client: client.set("{of}:source", value))
        assert client.strlen("{of}:source") == size
        assert client.get("{of}:source") == value
        for start in 0, 5 * MIB - 10, size - 100_000:
            assert client.getrange("{of}:source", start, start + 99_999) == value[start : start + 100_000]
        assert client.getdel("{of}:source") == value
        assert client.get("{of}:source") is None
    # Each of six nodes has a quarter of the value.
    for node in range(cluster.nodes):
        assert peak_mib(cluster, node) < size // 4 // MIB + OVER_PARTS_MIB, f"node {node}"
    with socket.create_connection(("127.0.0.1", cluster.port), timeout=TIMEOUT_S) as connection:
        connection.sendall(head_of_set(b"key", size + 1))
        assert b"invalid bulk length" in connection.recv(1000)
    until_parts_are(cluster, 0)


def test_long_values_are_changed_and_copied(start_cluster, rng):
    cluster = start_cluster(memory="256mb")
    value = rng.randbytes(20 * MIB + 3)
    client = bytes_of(cluster, 0)
    assert client.set("{of}:a", value, nx=True, ex=100) and client.ttl("{of}:a") > 90
    assert client.set("{of}:a", b"x" * (2 * MIB), nx=True) is None
    assert client.append("{of}:a", b"more") == len(value) + 4
    assert client.setrange("{of}:a", 7 * MIB - 3, b"changed") == len(value) + 4
    expected = bytearray(value + b"more")
    expected[7 * MIB - 3 : 7 * MIB + 4] = b"changed"
    assert client.execute_command("PARITAS.REDUNDANCY", "{of}:a", "rep:3") == b"OK"
    assert client.copy("{of}:a", "{of}:b") and client.rename("{of}:a", "{of}:c")
    assert client.set("{of}:b", value, get=True) == bytes(expected)
    assert client.get("{of}:c") == bytes(expected) and client.get("{of}:b") == value
    assert client.mget("{of}:b", "{of}:none", "{of}:c") == [value, None, bytes(expected)]
    with pytest.raises(redis.ResponseError, match="not a valid float"):
        client.incrbyfloat("{of}:c", 1)
    assert client.flushall()
    until_parts_are(cluster, 0)


def test_append_and_setrange_take_arguments_as_long_as_values(start_cluster, rng):
    cluster = start_cluster(memory="512mb")
    old, more = (rng.randbytes(MIB) * count for count in (100, 150))
    # At another node than the owner.
    client = bytes_of(cluster, (owner_of(cluster, "{of}:a") + 1) % cluster.nodes)
    # A key that does not exist gets the argument itself.
    assert once_sent(lambda: client.append("{of}:a", old)) == len(old)
    expected = bytearray(old)
    assert once_sent(lambda: client.append("{of}:a", more)) == len(old) + len(more)
    expected += more
    start = len(expected) - 30 * MIB - 5
    assert once_sent(lambda: client.setrange("{of}:a", start, old[: 40 * MIB])) == start + 40 * MIB
    expected[start:] = old[: 40 * MIB]
    assert client.get("{of}:a") == expected
    assert client.delete("{of}:a") == 1
    client.set("{of}:b", "short", ex=100)
    assert once_sent(lambda: client.append("{of}:b", more[: 20 * MIB])) == 20 * MIB + 5
    assert client.get("{of}:b") == b"short" + more[: 20 * MIB] and client.ttl("{of}:b") > 60
    for offset, error in ((-1, "out of range"), (512 * MIB, "maximum allowed size")):
        with pytest.raises(redis.ResponseError, match=error):
            client.setrange("{of}:b", offset, old[: 2 * MIB])
    assert client.strlen("{of}:b") == 20 * MIB + 5
    # SETRANGE has the old value, the argument and the new one in parts: 250, 40 and 260 MiB. There are 20 MiB of the
    # other key, and up to 400 MiB of the commands before are not freed yet. Each node has a quarter.
    for node in range(cluster.nodes):
        assert peak_mib(cluster, node) < 250 + OVER_PARTS_MIB, f"node {node}"
    assert client.flushall()
    until_parts_are(cluster, 0)


def test_clients_that_go_or_send_too_slowly_leave_nothing(start_cluster):
    cluster = start_cluster(memory="256mb")
    connections = []
    for n in range(12):
        connection = socket.create_connection(("127.0.0.1", cluster.port + n % 6), timeout=TIMEOUT_S)
        connection.sendall(head_of_set(b"slow", 64 * MIB) + bytes(MIB))
        connections.append(connection)
    until(lambda: parts_bytes(cluster) > 0, "parts")
    for connection in connections[::2]:
        connection.close()
    # The others send no more. After their first bytes that is allowed for 10 s, looked at every 10 s.
    until(lambda: parts_bytes(cluster) == 0, "no parts")
    client = bytes_of(cluster, 0)
    assert client.exists("slow") == 0
    slow = connections[1]
    slow.sendall(bytes(63 * MIB) + b"\r\n")
    assert b"more slowly" in slow.recv(1000)
    slow.sendall(b"PING\r\n")
    assert slow.recv(1000) == b"+PONG\r\n"


def test_a_slow_reader_gets_the_value_that_was_there_and_delays_nobody(start_cluster, rng):
    cluster = start_cluster(memory="256mb")
    value = rng.randbytes(40 * MIB)
    owner = owner_of(cluster, "key")
    clients = [bytes_of(cluster, node) for node in range(cluster.nodes)]
    clients[0].set("key", value)
    clients[0].set("other", "small")
    readers = []
    for node in owner, (owner + 1) % cluster.nodes:
        reader = socket.create_connection(("127.0.0.1", cluster.port + node), timeout=TIMEOUT_S)
        reader.sendall(b"GET key\r\nGET other\r\n")
        readers.append(reader)
        assert reader.recv(1, socket.MSG_PEEK) == b"$"
    for client in clients:
        client.set("key", "after")
        assert client.get("key") == b"after"
    for reader in readers:
        wanted = b"$%d\r\n" % len(value) + value + b"\r\n$5\r\nsmall\r\n"
        assert received(reader, len(wanted)) == wanted
        reader.close()
    until_parts_are(cluster, 0)


def test_an_mget_longer_than_one_reply_is_read_value_by_value(start_cluster, rng):
    cluster = start_cluster(memory="256mb")
    client = bytes_of(cluster, 0)
    values = {b"{of}:%d" % n: rng.randbytes(24 * MIB + n) for n in range(4)} | {b"key:%d" % n: rng.randbytes(700_000 + n) for n in range(60)}
    for key, value in values.items():
        assert client.set(key, value)
    tagged = [key for key in values if key.startswith(b"{of}")]
    owner = owner_of(cluster, "{of}:0")
    for node in owner, (owner + 1) % cluster.nodes:
        client = bytes_of(cluster, node)
        # Of one hash slot; of all nodes; many that are shorter than a piece.
        for keys in tagged, [*values], [key for key in values if key not in tagged]:
            assert client.mget(keys) == [values[key] for key in keys], f"node {node}"
    # One that knows the owner, on its strict port.
    strict = redis.Redis(port=cluster.port + owner + 1_000, socket_timeout=TIMEOUT_S)
    assert strict.mget(tagged) == [values[key] for key in tagged]
    # A client that reads slowly and sends a command behind it; others write meanwhile.
    reader = socket.create_connection(("127.0.0.1", cluster.port + (owner + 1) % cluster.nodes), timeout=TIMEOUT_S)
    reader.sendall(b"MGET " + b" ".join(tagged) + b"\r\n")
    assert reader.recv(1, socket.MSG_PEEK) == b"*"
    reader.sendall(b"PING\r\n")
    assert bytes_of(cluster, 0).set("key:0", "after") and bytes_of(cluster, 0).get("key:0") == b"after"
    wanted = b"*4\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(values[key]), values[key]) for key in tagged) + b"+PONG\r\n"
    assert received(reader, len(wanted)) == wanted
    reader.close()
    sum_mib = sum(map(len, values.values())) // MIB
    # A reply of at most 32 MiB is made whole.
    for node in range(cluster.nodes):
        assert peak_mib(cluster, node) < sum_mib // 4 + OVER_PARTS_MIB + 32, f"node {node}"


def test_a_value_that_is_read_comes_whole_though_its_owner_and_another_node_die(start_cluster, rng):
    """The node of the client reads it from its parts. A client that has taken a part of it gets the rest."""
    cluster = start_cluster(memory="256mb")
    value = rng.randbytes(64 * MIB + 5)
    owner = owner_of(cluster, "{of}:key")
    assert bytes_of(cluster, owner).set("{of}:key", value)
    with socket.create_connection(("127.0.0.1", cluster.port + (owner + 1) % cluster.nodes), timeout=TIMEOUT_S) as reader:
        reader.sendall(b"GET {of}:key\r\n")
        head = b"$%d\r\n" % len(value)
        begun = received(reader, len(head) + MIB)
        dead = cluster.kill(owner, (owner + 3) % cluster.nodes)
        rest = received(reader, len(value) - MIB + 2)
        assert begun + rest == head + value + b"\r\n"
    cluster.until_replaced(dead, timeout_s=60)


def test_nodes_die_while_long_values_are_written_and_read(start_cluster, rng):
    """A SET whose client's node lives ends with OK, or with an error that says what happened."""
    cluster = start_cluster(memory="256mb")
    old, new = (rng.randbytes(24 * MIB) for _ in range(2))
    keys = [f"key:{n}" for n in range(6)]
    entry = 0
    client = bytes_of(cluster, entry)
    for key in keys:
        client.set(key, old)
    half = threading.Event()
    outcome = {}

    def write(key):
        with socket.create_connection(("127.0.0.1", cluster.port + entry), timeout=60) as connection:
            head = head_of_set(key.encode(), len(new))
            connection.sendall(head + new[: 12 * MIB])
            half.wait(TIMEOUT_S)
            connection.sendall(new[12 * MIB :] + b"\r\n")
            outcome[key] = connection.recv(1000)

    threads = [threading.Thread(target=write, args=(key,)) for key in keys[:4]]
    for thread in threads:
        thread.start()
    until(lambda: parts_bytes(cluster) > 0, "parts")
    dead = cluster.kill(2, 3)
    half.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a SET without an answer"
    cluster.until_replaced(dead, timeout_s=60)
    for key in keys[:4]:
        answer = outcome[key]
        assert answer.startswith((b"+OK", b"-TRYAGAIN", b"-CLUSTERDOWN", b"-UNCERTAIN", b"-NOREPLICAS")), answer
        value = client.get(key)
        assert value in (old, new), f"{key}: neither old nor new"
        if not answer.startswith(b"-UNCERTAIN"):
            assert value == (new if answer.startswith(b"+OK") else old), f"{key}: {answer}"
    assert all(client.get(key) == old for key in keys[4:])
    assert any(is_owner(cluster, node, keys[0]) for node in range(6))
