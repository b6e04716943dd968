"""A large value can get another redundancy class at any time. It stays whole, also while nodes die and clients write it."""

import itertools

import pytest
import redis

from conftest import TIMEOUT_S, Background, is_refused, once_served, until
from test_large_values import ROOMY, bytes_of, parts_bytes, until_only_the_sentinel_has_parts, until_parts_are

MIB = 1 << 20
COMMAND = "PARITAS.REDUNDANCY"
# Bytes of parts of a value of 1 MiB: 16 rows of four units of 16 KiB, or 13 rows of five, the last one shorter, in whole chunks.
PARTS_BYTES = {"ec:4,2": MIB * 6 // 4, "rep:3": 3 * MIB, "eor:3,4": 3 * MIB, "ec:2,2": 2 * MIB, "eor:4,4": 4 * MIB}


@pytest.fixture
def cluster(start_cluster):
    return start_cluster(memory=ROOMY)


def value_of(n, length=MIB):
    return f"{n};".encode() * (length // len(f"{n};") + 1)


def test_a_value_keeps_its_bytes_in_every_class_and_uses_the_memory_of_its_class(cluster):
    client = bytes_of(cluster, 0)
    value = value_of(1)[:MIB]
    client.set("k", value, ex=10_000)
    classes = list(PARTS_BYTES)
    for n, class_ in enumerate([*classes, *reversed(classes)]):
        via = bytes_of(cluster, n % cluster.nodes)
        assert via.execute_command(COMMAND, "k", class_) == b"OK"
        assert via.execute_command(COMMAND, "k") == class_.encode()
        assert client.get("k") == value
        assert client.getrange("k", MIB - 3, -1) == value[-3:]
        until_parts_are(cluster, PARTS_BYTES[class_])
    assert 9_000 < client.ttl("k") <= 10_000
    client.delete("k")
    until_only_the_sentinel_has_parts(cluster)


def test_every_class_survives_two_losses_and_two_more(cluster):
    client = bytes_of(cluster, 0)
    classes = {"ec:4,2": "ec:4,2", "rep:3": "rep:3", "eor:3,4": "eor:3,4", "ec:2,3": "ec:2,3", "back": "ec:4,2"}
    values = {}
    for n, (key, class_) in enumerate(classes.items()):
        # A rest of 40 KiB is in the object, one of 50 KiB in a short row.
        values[key] = value_of(n, MIB + n * 12_345)
        client.set(key, values[key])
        if key == "back":
            client.execute_command(COMMAND, key, "eor:3,4")
        client.execute_command(COMMAND, key, class_)
    for lost in [(1, 2), (3, 4)]:
        dead = cluster.kill(*lost)
        # Only now: their processes come back at once.
        for key, value in values.items():
            assert once_served(lambda: client.get(key)) == value, key
        cluster.until_replaced(dead)
        for key, class_ in classes.items():
            assert client.get(key) == values[key], key
            assert client.execute_command(COMMAND, key) == class_.encode()
    client.delete(*values)
    until_only_the_sentinel_has_parts(cluster)


class Changing(Background):
    """Changes the class of a key all the time."""

    def __init__(self, client, key):
        super().__init__()
        self.client, self.key, self.done = client, key, 0

    def work(self):
        for class_ in itertools.cycle(["eor:3,4", "ec:4,2", "rep:3"]):
            if self.ending.is_set():
                return
            try:
                self.client.execute_command(COMMAND, self.key, class_)
                self.done += 1
            except redis.ResponseError as error:
                assert is_refused(error), error


def test_a_concurrent_write_wins(cluster):
    """A client writes a key while another changes its class. A read never goes back behind a write."""
    client = bytes_of(cluster, 0)
    client.set("k", value_of(0))
    changing = Changing(bytes_of(cluster, 1), "k")
    changing.start()
    for n in range(1, 60):
        client.set("k", value_of(n))
        assert bytes_of(cluster, 2).get("k") == value_of(n)
        until(lambda before=changing.done: changing.done > before or changing.broken, "a change of class")
    changing.stop()
    client.delete("k")
    until_only_the_sentinel_has_parts(cluster)


def test_copies_share_parts_until_one_gets_another_class(cluster):
    client = bytes_of(cluster, 0)
    value = value_of(3)[:MIB]
    client.set("{t}a", value)
    client.execute_command(COMMAND, "{t}a", "eor:3,4")
    client.copy("{t}a", "{t}b")
    assert client.execute_command(COMMAND, "{t}b") == b"eor:3,4"
    client.execute_command(COMMAND, "{t}a", "ec:4,2")
    until_parts_are(cluster, PARTS_BYTES["ec:4,2"] + PARTS_BYTES["eor:3,4"])
    client.delete("{t}a")
    until_parts_are(cluster, PARTS_BYTES["eor:3,4"])
    cluster.kill(1, 2)
    assert once_served(lambda: client.get("{t}b")) == value


def test_rules_give_new_values_their_class(start_cluster):
    cluster = start_cluster(memory=ROOMY, more=["--redundancy-rules", "img:* eor:3,4 1mb; img:* rep:3"])
    client = bytes_of(cluster, 0)
    for key, length, class_ in [
        ("img:long", MIB, b"eor:3,4"),
        ("img:short", MIB - 1, b"rep:3"),
        ("img:small", 100, b"ec:4,2"),
        ("other", MIB, b"ec:4,2"),
    ]:
        for node in range(cluster.nodes):
            bytes_of(cluster, node).set(key, bytes(length))
            assert client.execute_command(COMMAND, key) == class_, key
    for node in range(cluster.nodes):
        assert cluster.client(node).config_set("redundancy-rules", "other* ec:2,2")
    client.set("other", bytes(MIB))
    assert client.execute_command(COMMAND, "other") == b"ec:2,2"
    # What is there stays.
    assert client.execute_command(COMMAND, "img:long") == b"eor:3,4"
    with pytest.raises(redis.ResponseError, match="ec:5,2 needs 7 nodes"):
        client.config_set("redundancy-rules", "img:* ec:5,2")


# Also a busy machine reads a value twice in these seconds, so that it stays hot.
HOTNESS = "hot eor:3,4 cold ec:4,2 reads 4 seconds 5"


def counted(cluster, name):
    return sum(int(cluster.client(node).info("paritas")[name]) for node in range(cluster.nodes))


def test_a_value_that_is_read_often_gets_another_class_and_loses_it_later(start_cluster):
    cluster = start_cluster(memory=ROOMY, more=["--redundancy-rules", "ruled* ec:2,2", "--redundancy-hotness", HOTNESS])
    client = bytes_of(cluster, 0)
    keys = ["ruled", "mine", *(f"k{n}" for n in range(8))]
    values = {key: value_of(n)[:MIB] for n, key in enumerate(keys)}
    for key, value in values.items():
        client.set(key, value)
    client.execute_command(COMMAND, "mine", "rep:3")
    # Once each: nothing becomes hot.
    for key, value in values.items():
        assert client.get(key) == value

    def hot_after_reads():
        for key in "ruled", "mine", "k0":
            assert bytes_of(cluster, 1).get(key) == values[key]
        return client.execute_command(COMMAND, "k0") == b"eor:3,4"

    until(hot_after_reads, "a hot value")
    wanted = PARTS_BYTES["ec:2,2"] + PARTS_BYTES["rep:3"] + PARTS_BYTES["eor:3,4"] + 7 * PARTS_BYTES["ec:4,2"]
    # It is read meanwhile, so that it stays hot.
    until(lambda: hot_after_reads() and parts_bytes(cluster) == wanted, f"{wanted} bytes of parts")
    assert client.execute_command(COMMAND, "ruled") == b"ec:2,2"
    assert client.execute_command(COMMAND, "mine") == b"rep:3"
    # More often than once if the reads paused.
    assert counted(cluster, "to_hot_values") >= 1
    # It is not read any more.
    until(lambda: client.execute_command(COMMAND, "k0") == b"ec:4,2", "a cold value", timeout_s=3 * TIMEOUT_S)
    assert counted(cluster, "to_cold_values") == counted(cluster, "to_hot_values")
    for key, value in values.items():
        assert client.get(key) == value
    client.delete(*values)
    until_only_the_sentinel_has_parts(cluster)


def test_hot_values_outlive_two_nodes_and_become_cold_at_their_new_owners(start_cluster):
    cluster = start_cluster(memory=ROOMY, more=["--redundancy-hotness", HOTNESS])
    client = bytes_of(cluster, 0)
    values = {f"k{n}": value_of(n, MIB + n * 12_345) for n in range(6)}
    for key, value in values.items():
        client.set(key, value)

    def all_hot():
        for key, value in values.items():
            assert client.get(key) == value
        return all(client.execute_command(COMMAND, key) == b"eor:3,4" for key in values)

    until(all_hot, "hot values")
    for lost in [(1, 2), (3, 4)]:
        dead = cluster.kill(*lost)
        for key, value in values.items():
            assert once_served(lambda: client.get(key)) == value, key
        cluster.until_replaced(dead)
    until(lambda: all(client.execute_command(COMMAND, key) == b"ec:4,2" for key in values), "cold values", timeout_s=3 * TIMEOUT_S)
    for key, value in values.items():
        assert client.get(key) == value, key
    client.delete(*values)
    until_only_the_sentinel_has_parts(cluster)


def test_writes_beside_changes_by_reads_are_never_lost(start_cluster):
    """Each write is read until the value is hot, or nearly: many a write comes while the class changes."""
    cluster = start_cluster(memory=ROOMY, more=["--redundancy-hotness", "hot eor:3,4 cold ec:4,2 reads 2 seconds 1"])
    client, other = bytes_of(cluster, 0), bytes_of(cluster, 1)
    for n in range(1, 150):
        value = value_of(n, MIB + n * 997)
        client.set("k", value)
        for _ in range(2 + n % 5):
            assert other.get("k") == value
    until(lambda: counted(cluster, "to_hot_values") > 0 or other.get("k") == b"", "a change")
    with pytest.raises(redis.ResponseError, match="ec:5,2 needs 7 nodes"):
        client.config_set("redundancy-hotness", "hot eor:3,4 cold ec:5,2")
    with pytest.raises(redis.ResponseError, match="expected hot CLASS cold CLASS"):
        client.config_set("redundancy-hotness", "on")
    assert client.config_set("redundancy-hotness", "")
    client.delete("k")
    until_only_the_sentinel_has_parts(cluster)


def test_a_value_without_redundancy_goes_with_its_node_and_stops_nothing(cluster):
    client = bytes_of(cluster, 0)
    kept = {}
    for n in range(40):
        key = f"k{n}"
        client.set(key, value_of(n, 200_000))
        if n % 2 == 0:
            client.execute_command(COMMAND, key, "none" if n % 4 else "rep:2")
        else:
            kept[key] = value_of(n, 200_000)
    dead = cluster.kill(2, 3)
    for key, value in kept.items():
        assert once_served(lambda: client.get(key)) == value, key
    cluster.until_replaced(dead)
    there = [key for key in (f"k{n}" for n in range(0, 40, 2)) if client.get(key) is not None]
    for key in there:
        assert client.get(key) == value_of(int(key[1:]), 200_000), key
    lost = sum(int(cluster.client(node).info("paritas")["lost_values"]) for node in range(cluster.nodes))
    assert len(there) + lost == 20 and lost > 0
    # The list has all its redundancy again: two more may go.
    cluster.kill(4, 5)
    for key, value in kept.items():
        assert once_served(lambda: client.get(key)) == value, key


def test_what_is_wrong_is_named_and_changes_nothing(cluster):
    client = bytes_of(cluster, 3)
    client.set("large", value_of(1))
    client.set("small", "v")

    def error(*arguments):
        with pytest.raises(redis.exceptions.ResponseError) as raised:
            client.execute_command(COMMAND, *arguments)
        return str(raised.value)

    assert "is not a redundancy class: expected none, rep:COPIES" in error("large", "raid:5")
    assert "ec:5,2 needs 7 nodes, and a stripe list of this cluster has 6" in error("large", "ec:5,2")
    assert "at most one cut replica" in error("large", "eor:5,3")
    assert "no such key" in error("missing", "rep:3")
    assert "only a value that is larger than one object" in error("small", "rep:3")
    assert "wrong number of arguments" in error()
    assert "usage" in error("large", "rep:3", "more")
    assert client.execute_command(COMMAND, "large") == b"ec:4,2"
    assert client.execute_command(COMMAND, "small") == b"ec:4,2"
    assert client.execute_command(COMMAND, "missing") is None
    assert client.execute_command(COMMAND.lower(), "large", "REP:3") == b"OK"
    assert client.get("large") == value_of(1)
    assert client.execute_command(COMMAND, "large") == b"rep:3"
