"""Values above 64 KiB lie in parts at all positions of their list. They are whole, at once readable after losses, and
nothing of them stays behind."""

import itertools
import socket
import threading

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from conftest import TIMEOUT_S, Background, is_refused, once_done, once_served, until
from test_snapshot import done

ARGUMENT_MAX = 16 << 20
STRING_MAX = 512 << 20
# Values up to this length are in one object.
SMALL_MAX = 64 << 10
# A node holds an eighth of its memory for clients. A command or reply of 16 MiB must fit in it.
ROOMY = "512mb"
SENTINEL = 1 << 20
# 16 rows of four data and two parity units, each of 16 KiB.
SENTINEL_PARTS = 16 * 6 * (16 << 10)


def bytes_of(cluster, node):
    return cluster.client(node, decode_responses=False)


def is_owner(cluster, node, key):
    """A node's port for cluster-aware clients answers only for keys that the node owns."""
    strict = redis.Redis(port=cluster.port + 1_000 + node, socket_timeout=TIMEOUT_S, retry=Retry(NoBackoff(), 0))
    try:
        strict.exists(key)
        return True
    except redis.exceptions.MovedError:
        return False


def owner_of(cluster, key):
    return next(node for node in range(cluster.nodes) if is_owner(cluster, node, key))


def parts_bytes(cluster):
    """Bytes of parts in all memories, as all nodes have last reported them."""
    return cluster.any_status()["memory"]["by_kind"].get("parts", 0)


def until_parts_are(cluster, wanted):
    """Waits until the parts in all memories have this many bytes. A status may be older than the last command."""
    until(lambda: parts_bytes(cluster) == wanted, f"{wanted} bytes of parts")


def until_only_the_sentinel_has_parts(cluster, node=0):
    """A value of known size shows that the status is newer than every command before."""
    client = bytes_of(cluster, node)
    client.set("sentinel", bytes(SENTINEL))
    until_parts_are(cluster, SENTINEL_PARTS)
    client.delete("sentinel")
    until_parts_are(cluster, 0)


@pytest.mark.parametrize("size", [SMALL_MAX + 1, 100_000, 1 << 20, 5_000_001, ARGUMENT_MAX])
def test_a_large_value_through_any_node(start_cluster, rng, size):
    cluster = start_cluster(memory=ROOMY)
    value = rng.randbytes(size)
    owner = owner_of(cluster, "{of}:source")
    clients = [bytes_of(cluster, node) for node in range(cluster.nodes)]
    at_owner, elsewhere = clients[owner], clients[(owner + 1) % cluster.nodes]
    for writer in at_owner, elsewhere:
        writer.set("{of}:source", "before")
        assert writer.set("{of}:source", value)
        for client in clients:
            assert client.get("{of}:source") == value
            assert client.strlen("{of}:source") == size
    # What is left after the last full row of four units of 16 KiB is short enough to stay in the object, or is one more row.
    border = size - size % SMALL_MAX
    for client in at_owner, elsewhere:
        for start, end in [(border - 10, border + 10), (border - 40_000, border), (border, border + 5), (0, 0), (size - 3, size + 9)]:
            assert client.getrange("{of}:source", start, end) == value[start : end + 1]
        assert client.getrange("{of}:source", -70_000, -1) == value[-70_000:]
    assert elsewhere.copy("{of}:source", "{of}:copy")
    assert elsewhere.rename("{of}:source", "{of}:renamed")
    assert at_owner.exists("{of}:source") == 0 and at_owner.get("{of}:renamed") == value
    assert elsewhere.delete("{of}:renamed") == 1
    assert at_owner.get("{of}:copy") == value, "the copy must not lose what the source had"
    if size < ARGUMENT_MAX:
        more = rng.randbytes(3_000)
        assert elsewhere.append("{of}:copy", more) == size + 3_000
        assert at_owner.get("{of}:copy") == value + more
        patch = rng.randbytes(100)
        assert at_owner.setrange("{of}:copy", border - 50, patch) == size + 3_000
        expected = bytearray(value + more)
        expected[border - 50 : border + 50] = patch
        assert elsewhere.get("{of}:copy") == bytes(expected)
    assert elsewhere.delete("{of}:copy") == 1
    assert at_owner.get("{of}:copy") is None


def test_what_is_too_long_is_refused_and_changes_nothing(start_cluster):
    cluster = start_cluster(memory=ROOMY)
    for node in range(2):
        client = bytes_of(cluster, node)
        client.set("kept", "before")
        with pytest.raises(redis.ResponseError, match=str(ARGUMENT_MAX)):
            client.echo(bytes(ARGUMENT_MAX + 1))
        assert client.get("kept") == b"before"
        # These have the error of Redis, which names no number.
        for longer in [("SETRANGE", "kept", STRING_MAX, "x"), ("SETRANGE", "kept", STRING_MAX - 5, "longer")]:
            with pytest.raises(redis.ResponseError, match="string exceeds maximum allowed size"):
                client.execute_command(*longer)
        assert client.get("kept") == b"before"
        client.set("{of}:one", "before")
        for command in client.mset, client.msetnx:
            with pytest.raises(redis.ResponseError, match="command larger than 16908288 bytes"):
                command({"{of}:one": bytes(9 << 20), "{of}:other": bytes(9 << 20)})
            with pytest.raises(redis.ResponseError, match=str(ARGUMENT_MAX)):
                command({"{of}:one": "after", "{of}:other": bytes(ARGUMENT_MAX + 1)})
            assert client.mget("{of}:one", "{of}:other") == [b"before", None]
    until_only_the_sentinel_has_parts(cluster)


def test_mset_and_msetnx_take_large_values(start_cluster, rng):
    cluster = start_cluster(memory=ROOMY)
    values = {f"{{of}}:{n}": rng.randbytes(length) for n, length in enumerate([5, SMALL_MAX + 1, 1 << 20, 100_000, 7 << 20])}
    owner = owner_of(cluster, "{of}")
    for node in owner, (owner + 1) % cluster.nodes:
        client = bytes_of(cluster, node)
        assert client.mset(values)
        assert client.mget(list(values)) == list(values.values())
        assert not client.msetnx({"{of}:new": bytes(100_000), "{of}:2": bytes(100_000)})
        assert client.exists("{of}:new") == 0 and client.strlen("{of}:2") == 1 << 20
        assert client.msetnx({"{of}:new": values["{of}:3"], "{of}:newer": "small"})
        assert client.get("{of}:new") == values["{of}:3"]
        assert client.delete(*values, "{of}:new", "{of}:newer") == 7
        # Each key has another hash slot, and all together are more than one part may have.
        many = {f"many:{n}": rng.randbytes([10, 70_000, 3 << 20][n % 3]) for n in range(18)}
        assert client.mset(many)
        for key, value in many.items():
            assert client.get(key) == value
        assert client.delete(*many) == len(many)
    # On the port for cluster-aware clients.
    strict = redis.Redis(port=cluster.port + 1_000 + owner, socket_timeout=TIMEOUT_S, retry=Retry(NoBackoff(), 0))
    assert strict.mset(values)
    assert strict.get("{of}:4") == values["{of}:4"]
    strict.delete(*values)
    until_only_the_sentinel_has_parts(cluster)


class PairWriter(Background):
    """Writes three keys of one hash slot together, two of them large."""

    def __init__(self, client, name):
        super().__init__()
        self.client, self.keys = client, [b"{%s}%d" % (name, n) for n in range(3)]
        self.done, self.possible = 0, {None}

    def work(self):
        for number in itertools.count(1):
            if self.ending.is_set():
                return
            word = b"%011d;" % number
            try:
                self.client.mset(dict(zip(self.keys, [word * 9_000, word, word * 20_000])))
                self.done, self.possible = self.done + 1, {number}
                continue
            except redis.ResponseError as error:
                if is_refused(error):
                    continue
                assert str(error).startswith("UNCERTAIN"), error
            except (redis.ConnectionError, redis.TimeoutError):
                self.client.connection_pool.disconnect()
            self.possible.add(number)


def number_of_all(values):
    """The number that three values say, which were written together."""
    if values == [None] * 3:
        return None
    numbers = {int(value[:11]) for value in values}
    assert len(numbers) == 1, f"{numbers}: written by one MSET, and read together"
    number = numbers.pop()
    word = b"%011d;" % number
    assert values == [word * 9_000, word, word * 20_000]
    return number


def test_an_mset_of_large_values_is_done_whole_or_not_at_all_while_nodes_die(start_cluster, rng):
    cluster = start_cluster()
    nodes = rng.sample(range(6), 6)
    writers = [PairWriter(bytes_of(cluster, node), b"pair%d" % node) for node in nodes[:3]]
    for writer in writers:
        writer.start()
    reader = bytes_of(cluster, nodes[5])
    for victim in nodes[2:4] + [owner_of(cluster, "{pair%d}" % nodes[0])]:
        before = [writer.done for writer in writers]

        def more_of_all():
            for writer in writers:
                try:
                    number_of_all(reader.mget(writer.keys))
                except redis.ResponseError as error:
                    assert is_refused(error), error
                except (redis.ConnectionError, redis.TimeoutError):
                    reader.connection_pool.disconnect()
            assert not any(writer.broken for writer in writers)
            return all(writer.done > done + 5 for writer, done in zip(writers, before))

        until(more_of_all, "writes of every writer")
        cluster.until_replaced(cluster.kill(victim))
    for writer in writers:
        writer.stop()
    for node in range(cluster.nodes):
        for writer in writers:
            assert number_of_all(bytes_of(cluster, node).mget(writer.keys)) in writer.possible
    for writer in writers:
        bytes_of(cluster, 0).delete(*writer.keys)
    until_only_the_sentinel_has_parts(cluster)


def set_some(cluster, rng, count, longest):
    """Sets large values of random lengths, each through another node."""
    values = {b"large:%d" % n: rng.randbytes(rng.randint(SMALL_MAX + 1, longest)) for n in range(count)}
    clients = [bytes_of(cluster, node) for node in range(cluster.nodes)]
    for client, (key, value) in zip(itertools.cycle(clients), values.items()):
        once_done(lambda client=client, key=key, value=value: client.set(key, value))
    return values


def compare(cluster, nodes, values):
    clients = [bytes_of(cluster, node) for node in nodes]
    for client, (key, value) in zip(itertools.cycle(clients), values.items()):
        assert once_served(lambda: client.get(key)) == value, key


def test_every_large_value_survives_two_losses_twice(start_cluster, rng):
    cluster = start_cluster()
    values = set_some(cluster, rng, 60, 1 << 20)
    nodes = rng.sample(range(6), 6)
    for victims in nodes[:2], nodes[2:4]:
        dead = cluster.kill(*victims)
        # Only now: their processes come back at once.
        compare(cluster, [node for node in nodes if node not in victims], values)
        cluster.until_replaced(dead)
        compare(cluster, nodes, values)


def test_no_part_is_left_after_all_is_deleted(start_cluster, rng):
    cluster = start_cluster()
    values = set_some(cluster, rng, 20, 1 << 20)
    until(lambda: parts_bytes(cluster) > sum(map(len, values.values())), "parts of all values")
    client = bytes_of(cluster, 0)
    for key in values:
        assert client.delete(key) == 1
    until_parts_are(cluster, 0)
    # With expiry, overwritten by small values, and by GETDEL.
    values = set_some(cluster, rng, 9, 200_000)
    for n, key in enumerate(values):
        [lambda key: client.pexpire(key, 1), lambda key: client.set(key, "small"), client.getdel][n % 3](key)
    until_only_the_sentinel_has_parts(cluster)


def test_no_part_is_left_after_two_losses_and_flushall(start_cluster, rng):
    cluster = start_cluster()
    set_some(cluster, rng, 20, 1 << 20)
    victims = rng.sample(range(6), 2)
    asked = next(node for node in range(6) if node not in victims)
    dead = cluster.kill(*victims)

    def flushed():
        try:
            return bytes_of(cluster, asked).flushall()
        except redis.ResponseError as error:
            assert is_refused(error) or str(error).startswith("UNCERTAIN"), error

    until(flushed, "FLUSHALL done")
    assert bytes_of(cluster, asked).dbsize() == 0
    cluster.until_replaced(dead)
    until_only_the_sentinel_has_parts(cluster, asked)


def numbered(number):
    """A value that says its number throughout. The number gives its length, at times that of a small value."""
    word = b"%011d;" % number
    length = [100_000, 70_001, 300_000, 66_000, 1_000, 131_072][number % 6] + number % 997
    return (word * (length // len(word) + 1))[:length]


class Overwriter(Background):
    """Overwrites its keys through one node and records the possible values of each."""

    def __init__(self, cluster, node, name):
        super().__init__()
        self.cluster, self.node = cluster, node
        self.keys = [b"%s:%d" % (name, n) for n in range(3)]
        # By key: numbers that the next read may find, and what became of each write.
        self.possible = {key: {None} for key in self.keys}
        self.writes = {key: {None: "never written"} for key in self.keys}
        self.acknowledged = self.refused = self.uncertain = 0

    def work(self):
        client = bytes_of(self.cluster, self.node)
        for number in itertools.count(1):
            if self.ending.is_set():
                return
            key = self.keys[number % len(self.keys)]
            self.writes[key][number] = "begun"
            try:
                client.set(key, numbered(number))
                self.acknowledged += 1
                self.possible[key] = {number}
                self.writes[key][number] = "acknowledged"
                continue
            except redis.ResponseError as error:
                self.writes[key][number] = str(error)
                if is_refused(error):
                    self.refused += 1
                    continue
                assert str(error).startswith("UNCERTAIN"), error
            except (redis.ConnectionError, redis.TimeoutError) as error:
                client.connection_pool.disconnect()
                self.writes[key][number] = str(error)
            self.uncertain += 1
            self.possible[key].add(number)

    def number_in(self, key, found):
        """The number that a value says. Fails if the value was never written to the key, or is a mixture."""
        if found is None:
            return None
        runs = [(int(word or b"0"), len(list(some))) for word, some in itertools.groupby(found.split(b";")[:-1])]
        number, newest, writes = runs[0][0], max(self.possible[key] - {None}, default=0), self.writes[key]
        if number not in writes or found != numbered(number):
            told = [(said, f"{count} words", writes.get(said)) for said, count in runs]
            raise AssertionError(f"{key}: {len(found)} bytes say {told}; newest {newest}; {dict(list(writes.items())[-60:])}")
        return number


class Watcher(Background):
    """Reads keys of others through one node."""

    def __init__(self, cluster, node, writers):
        super().__init__()
        self.client, self.writers, self.reads = bytes_of(cluster, node), writers, 0

    def work(self):
        for writer in itertools.cycle(self.writers):
            for key in writer.keys:
                if self.ending.is_set():
                    return
                try:
                    writer.number_in(key, self.client.get(key))
                    self.reads += 1
                except redis.ResponseError as error:
                    assert is_refused(error), error
                except (redis.ConnectionError, redis.TimeoutError):
                    self.client.connection_pool.disconnect()


def test_large_values_are_never_mixed_while_nodes_die(start_cluster, rng):
    cluster = start_cluster()
    nodes = rng.sample(range(6), 6)
    writers = [Overwriter(cluster, node, b"writer%d" % node) for node in nodes[:3]]
    # One writer and one watcher use a node that dies, twice.
    watchers = [Watcher(cluster, node, writers) for node in nodes[3:]]
    for thread in writers + watchers:
        thread.start()
    for victim in nodes[2:4] + nodes[2:4]:
        before = [writer.acknowledged for writer in writers]
        until(lambda: all(w.acknowledged > b + 10 for w, b in zip(writers, before)), "writes acknowledged by every writer")
        cluster.until_replaced(cluster.kill(victim))
    for thread in writers + watchers:
        thread.stop()
    print([(w.acknowledged, w.refused, w.uncertain) for w in writers], "acknowledged, refused, uncertain;", sum(w.reads for w in watchers), "reads")
    assert all(watcher.reads > 10 for watcher in watchers)
    for node in range(cluster.nodes):
        client = bytes_of(cluster, node)
        for writer in writers:
            for key, possible in writer.possible.items():
                number = writer.number_in(key, client.get(key))
                assert number in possible, f"{key}: found {number}, possible {possible}"


def set_command(key, value):
    return b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(key), key, len(value), value)


def set_through(cluster, node, key, value):
    """SET as the first command of the first connection to the node that is answered. Tries until the node is there."""

    def answer():
        try:
            with cluster.socket(node) as connection:
                connection.sendall(set_command(key, value))
                return connection.recv(100)
        except OSError:
            return None

    return until(answer, f"an answer of node {node}")


def test_a_write_through_a_restarted_node_does_not_continue_another(start_cluster, rng):
    """A node dies while it forwards a large value. Its next process numbers connections and commands as the dead one
    did, and the owner may still have the first part of the value."""
    cluster = start_cluster()
    # The port for other clients numbers its connections too, so no node but the owner may have been asked.
    # Nobody has connected to the other nodes.
    key = next(key for key in map(b"key:%d".__mod__, range(1_000)) if is_owner(cluster, 0, key))
    reader = bytes_of(cluster, 0)
    done = 0
    for node in range(1, cluster.nodes):
        old, new = (b"%s%d;" % (which, node) * 60_000 for which in (b"old", b"new"))
        pids = cluster.pids()
        with cluster.socket(node) as connection:
            connection.sendall(set_command(key, old))
            # The value must be on its way: the time is what is drawn.
            threading.Event().wait(rng.uniform(0.001, 0.008))
            cluster.kill_process(pids[node])
        first = set_through(cluster, node, key, new)
        if first == b"+OK\r\n":
            found = once_served(lambda: reader.get(key))
            assert found == new, f"{len(found)} bytes, {found.count(old[:5])} words of the value of the dead node"
            done += 1
        else:
            # A busy machine. This round shows nothing.
            assert is_refused(first[1:].decode()) or first.startswith(b"-UNCERTAIN"), first
        cluster.until_replaced([pids[node]])
    assert done, "no write was done"


def test_a_snapshot_has_large_values(start_cluster, rng, tmp_path):
    cluster = start_cluster(nodes=4, scheme="2+1")
    values = {b"large:%d" % size: rng.randbytes(size) for size in (SMALL_MAX, SMALL_MAX + 1, 1 << 20, 5_000_001, 20_000_003)}
    values |= {b"more:%d" % n: rng.randbytes(rng.randint(1, 300_000)) for n in range(40)}
    client = bytes_of(cluster, 1)
    for key, value in values.items():
        once_done(lambda key=key, value=value: client.set(key, value))
    file = tmp_path / "large.rdb"
    assert done("snapshot", file, cluster.port).startswith(f"{len(values)} keys, ")
    cluster.stop()
    fresh = start_cluster(nodes=3, scheme="1+1")
    assert done("restore", file, fresh.port).startswith(f"{len(values)} keys, ")
    compare(fresh, range(3), values)
    assert bytes_of(fresh, 0).dbsize() == len(values)


def begin_set(cluster, node, key, size, sent):
    """Sends the first bytes of a SET and disconnects."""
    with socket.create_connection(("127.0.0.1", cluster.port + node), timeout=TIMEOUT_S) as connection:
        head = b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n" % (len(key), key, size)
        connection.sendall((head + bytes(size) + b"\r\n")[: len(head) + sent])


def test_a_client_that_goes_leaves_nothing(start_cluster):
    """Half-way through a command, and with the whole command sent and no reply read."""
    cluster = start_cluster(memory="256mb")
    size = 10 << 20
    for n in range(10):
        begin_set(cluster, n % 6, b"half", size, size // 2)
    until_only_the_sentinel_has_parts(cluster)
    client = bytes_of(cluster, 0)
    assert client.exists("half") == 0
    threads = [threading.Thread(target=begin_set, args=(cluster, n % 6, b"whole", size, size + 2)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    # Each of them may be done after its client has gone, and after a deletion.
    client.set("sentinel", bytes(SENTINEL))
    until(lambda: client.delete("whole") == 0 and parts_bytes(cluster) == SENTINEL_PARTS, "no other part")
    client.delete("sentinel")
    until(lambda: client.delete("whole") == 0 and parts_bytes(cluster) == 0, "no part")


@pytest.mark.parametrize("size", [50_000, 4 << 20])
def test_clients_that_read_through_another_node_leave_no_buffers_at_the_owner(start_cluster, size):
    cluster = start_cluster(memory="256mb")
    bytes_of(cluster, 0).set("key", bytes(size))

    def buffers_bytes():
        return cluster.status()["memory"]["by_kind"].get("buffers", 0)

    before = buffers_bytes()
    count = 120 if size < SMALL_MAX else 24
    for n in range(count):
        with bytes_of(cluster, n % 6) as client:
            assert len(client.get("key")) == size
    # The gauges are those that the nodes have sent last.
    until_only_the_sentinel_has_parts(cluster) if size < SMALL_MAX else until(lambda: bytes_of(cluster, 0).delete("key"), "DEL")
    until(lambda: buffers_bytes() - before < count * size // 10, "the buffers to be free")
