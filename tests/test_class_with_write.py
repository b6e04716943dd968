"""PARITAS.SET writes a value and its redundancy class at once. The class is the one asked for, also after losses."""

import pytest
import redis

from conftest import once_served
from test_large_values import ROOMY, SMALL_MAX, bytes_of, until_only_the_sentinel_has_parts, until_parts_are
from test_redundancy import MIB, PARTS_BYTES, value_of

SET, TELL = "PARITAS.SET", "PARITAS.REDUNDANCY"
# Values that come with their command, and one that goes ahead of it.
LENGTHS = [SMALL_MAX + 1, 300_000, 3 * MIB + 5]


@pytest.fixture
def cluster(start_cluster):
    return start_cluster(memory=ROOMY)


def refused(client, *arguments):
    with pytest.raises(redis.exceptions.ResponseError) as raised:
        client.execute_command(*arguments)
    return str(raised.value)


def test_a_value_has_the_class_of_its_write_and_takes_the_memory_of_that_class(cluster):
    for n, (class_, bytes_) in enumerate(PARTS_BYTES.items()):
        client = bytes_of(cluster, n % cluster.nodes)
        value = value_of(n)[:MIB]
        assert client.execute_command(SET, class_, "k", value) == b"OK"
        assert client.execute_command(TELL, "k") == class_.encode()
        assert client.get("k") == value
        # Nothing is written twice: there are the parts of this class alone.
        until_parts_are(cluster, bytes_)
    client.set("k", value)
    assert client.execute_command(TELL, "k") == b"ec:4,2"
    client.delete("k")
    until_only_the_sentinel_has_parts(cluster)


def test_values_of_all_lengths_have_their_class_after_the_kill_of_two_nodes_and_two_more(cluster):
    client = bytes_of(cluster, 0)
    classes = ["ec:4,2", "rep:3", "eor:3,4", "ec:2,3", "rep:4"]
    values = {}
    for length in LENGTHS:
        for n, class_ in enumerate(classes):
            key = f"{class_}/{length}"
            values[key] = value_of(n, length)[:length]
            via = bytes_of(cluster, n % cluster.nodes)
            assert via.execute_command(SET, class_, key, values[key], "NX", "EX", 10_000) == b"OK"
    for lost in [(1, 2), (3, 4)]:
        dead = cluster.kill(*lost)
        for key, value in values.items():
            assert once_served(lambda: client.get(key)) == value, key
        cluster.until_replaced(dead)
        for key, value in values.items():
            assert client.get(key) == value, key
            assert client.execute_command(TELL, key).decode() == key.split("/")[0]
            assert 9_000 < client.ttl(key) <= 10_000
    client.delete(*values)
    until_only_the_sentinel_has_parts(cluster)


def test_options_are_those_of_set(cluster):
    client = bytes_of(cluster, 2)
    for length in LENGTHS:
        first, second = value_of(1, length)[:length], value_of(2, length)[:length]
        assert client.execute_command(SET, "rep:3", "k", first, "XX") is None
        assert client.execute_command(SET, "rep:3", "k", first, "NX", "PX", 90_000) == b"OK"
        assert client.execute_command(SET, "none", "k", second, "NX") is None
        assert client.execute_command(SET, "ec:2,2", "k", second, "GET", "KEEPTTL") == first
        assert client.execute_command(TELL, "k") == b"ec:2,2"
        assert 0 < client.pttl("k") <= 90_000
        assert client.execute_command(SET, "none", "k", first, "IFEQ", "other") is None
        assert client.execute_command(TELL, "k") == b"ec:2,2"
        assert client.execute_command(SET, "none", "k", "short") == b"OK"
        assert client.execute_command(SET, "eor:3,4", "k", first, "IFEQ", "short") == b"OK"
        assert client.execute_command(TELL, "k") == b"eor:3,4"
        assert client.ttl("k") == -1
        assert "syntax error" in refused(client, SET, "none", "k", first, "NX", "XX")
        assert client.execute_command(SET, "none", "k", first, "EXAT", 1) == b"OK"
        assert client.exists("k") == 0
    until_only_the_sentinel_has_parts(cluster)


def test_short_values_lie_in_stripes(cluster):
    client = bytes_of(cluster, 1)
    value = value_of(1, SMALL_MAX)[:SMALL_MAX]
    for class_ in ["none", "ec:2,1", "rep:3", "eor:3,4"]:
        assert client.execute_command(SET, class_, "k", value) == b"OK"
        assert client.get("k") == value
        assert client.execute_command(TELL, "k") == b"ec:4,2"
    why = refused(client, SET, "rep:4", "k", "v")
    assert "rep:4 survives 3 losses, but a value of at most 65536 bytes has the redundancy of the scheme" in why
    assert client.get("k") == value
    until_only_the_sentinel_has_parts(cluster)


def test_what_is_wrong_is_named_and_changes_nothing(cluster):
    client = bytes_of(cluster, 3)
    client.set("k", "before")
    for length in [1, *LENGTHS]:
        value = bytes(length)
        assert "is not a redundancy class: expected none, rep:COPIES, ec:DATA,PARITY or eor" in refused(client, SET, "raid:5", "k", value)
        assert "ec:5,2 needs 7 nodes, and a stripe list of this cluster has 6" in refused(client, SET, "ec:5,2", "k", value)
        assert "at most one cut replica" in refused(client, SET, "eor:5,3", "k", value)
    assert "wrong number of arguments" in refused(client, SET, "none", "k")
    for value in ["v", bytes(100_000)]:
        client.execute_command("MULTI")
        assert "'paritas.set' cannot be in a transaction here" in refused(client, SET, "none", "k", value)
        assert "discarded because of previous errors" in refused(client, "EXEC")
        script = "return redis.call('PARITAS.SET', 'none', KEYS[1], ARGV[1])"
        assert "not allowed from script" in refused(client, "EVAL", script, 1, "k", value)
    assert client.get("k") == b"before"
    until_only_the_sentinel_has_parts(cluster)


def test_clients_of_a_cluster_are_told_where_its_key_is(cluster):
    client = cluster.client(0)
    assert client.execute_command("COMMAND GETKEYS", SET, "none", "k", "v", "EX", 9) == ["k"]
    name, arity, _, *keys = client.execute_command("COMMAND INFO", SET)[0][:6]
    assert (name, arity, keys) == ("paritas.set", -4, [2, 2, 1])
    cluster_client = redis.RedisCluster(host="127.0.0.1", port=cluster.port + 1_000)
    value = value_of(1, 2 * MIB)
    for n in range(20):
        # The client takes the first key of COMMAND for that of the command.
        assert cluster_client.execute_command(SET, "rep:3", f"k{n}", value) == b"OK"
        assert cluster_client.get(f"k{n}") == value
    cluster_client.close()


def test_values_above_large_from_are_large_and_all_stay_readable(start_cluster):
    cluster = start_cluster(memory=ROOMY, more=["--chunk", "4kb", "--large-from", "16kb"])
    client = bytes_of(cluster, 0)
    assert cluster.client(0).config_get("large-from") == {"large-from": "16384"}
    assert cluster.client(0).info("paritas")["large_from"] == 16 << 10
    short, long = value_of(1, 16 << 10)[: 16 << 10], value_of(2, 16 << 10)[: (16 << 10) + 1]
    for class_ in ["rep:3", "eor:3,4", "ec:2,2"]:
        assert client.execute_command(SET, class_, "long", long) == b"OK"
        assert client.execute_command(SET, class_, "short", short) == b"OK"
        assert client.execute_command(TELL, "long") == class_.encode()
        assert client.execute_command(TELL, "short") == b"ec:4,2"
    assert "a value of at most 16384 bytes" in refused(client, SET, "rep:4", "short", short)
    assert client.execute_command(SET, "rep:4", "long", long) == b"OK"
    client.set("scheme", long)
    client.mset({"several": long, "small": "v"})
    values = {"long": long, "short": short, "scheme": long, "several": long, "small": b"v"}
    # Each node has a setting of its own. What is there stays.
    for node in range(cluster.nodes):
        assert "at least 16384 are needed, not 16383" in refused(bytes_of(cluster, node), "CONFIG", "SET", "large-from", "16383")
        assert "at most 65536 are possible" in refused(bytes_of(cluster, node), "CONFIG", "SET", "large-from", "65537")
        assert bytes_of(cluster, node).config_set("large-from", "64kb")
    assert client.execute_command(TELL, "long") == b"rep:4"
    client.set("between", long)
    values["between"] = long
    assert "only a value that is larger than one object" in refused(client, TELL, "between", "rep:3")
    for node in range(0, cluster.nodes, 2):
        assert bytes_of(cluster, node).config_set("large-from", "20000")
    longer = value_of(3, 40_000)[:40_000]
    for n in range(30):
        values[f"k{n}"] = longer
        bytes_of(cluster, n % cluster.nodes).set(f"k{n}", longer)
    dead = cluster.kill(1, 2)
    for key, value in values.items():
        assert once_served(lambda: client.get(key)) == value, key
    cluster.until_replaced(dead)
    # A write follows the setting of the owner of now.
    for key, value in values.items():
        assert client.append(key, b"!") == len(value) + 1
        assert client.get(key) == value + b"!", key
    client.delete(*values)
    until_only_the_sentinel_has_parts(cluster)
