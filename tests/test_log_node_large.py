"""Large values in clusters with log nodes: their last parity is on a disk, takes no memory, and is used when nodes are lost."""

import pytest
import redis

from conftest import once_done, once_served
from test_large_values import ROOMY, bytes_of, parts_bytes, until_parts_are
from test_redundancy import COMMAND, MIB, value_of


@pytest.fixture
def cluster(start_cluster):
    return start_cluster(scheme="4+2/1", nodes=5, log_nodes=1, memory=ROOMY)


def load(cluster, count):
    values = {f"value:{n}": value_of(n, MIB + 12_345 * n) for n in range(count)}
    client = bytes_of(cluster, 0)
    for key, value in values.items():
        once_done(lambda key=key, value=value: client.set(key, value))
    return values


def all_are_right(cluster, node, values):
    client = bytes_of(cluster, node)
    for key, value in values.items():
        assert once_served(lambda: client.get(key)) == value, key


def test_the_logged_parity_takes_no_memory_and_two_losses_leave_all_values(cluster):
    client = bytes_of(cluster, 0)
    client.set("one", value_of(0, MIB))
    # Four data blocks and one parity in memory, and a parity on the disk.
    until_parts_are(cluster, MIB * 5 // 4)
    assert client.execute_command(COMMAND, "one") == b"ec:4,2"
    client.delete("one")
    values = load(cluster, 12)
    # Each time two of the nodes with memory, or one and the log node. No process comes back before the reads.
    for victims in [(1, 3), (4, 5), (2, 5), (1, 4)]:
        dead = cluster.kill(*victims)
        all_are_right(cluster, 0, values)
        cluster.until_replaced(dead)
    before = parts_bytes(cluster)
    bytes_of(cluster, 0).delete(*values)
    assert before > 0
    until_parts_are(cluster, 0)


def test_long_values_and_other_classes(cluster):
    client = bytes_of(cluster, 1)
    long = value_of(7, 24 * MIB)
    client.set("long", long)
    client.set("eor", value_of(8))
    for class_ in ("eor:3,4", "ec:4,2", "rep:3", "ec:4,2", "none", "ec:3,2"):
        assert client.execute_command(COMMAND, "eor", class_) == b"OK", class_
        assert client.get("eor") == value_of(8), class_
    client.append("eor", b"end")
    dead = cluster.kill(0, 2)
    assert once_served(lambda: bytes_of(cluster, 3).get("long")) == long
    assert once_served(lambda: bytes_of(cluster, 3).get("eor")) == value_of(8) + b"end"
    cluster.until_replaced(dead)
    # A log node that comes back has the parts of its tenure before no longer. It makes them again before it is Live.
    cluster.until_replaced(cluster.kill(5))
    dead = cluster.kill(1, 4)
    assert once_served(lambda: bytes_of(cluster, 3).get("long")) == long
    cluster.until_replaced(dead)


def test_what_the_disk_of_a_log_node_cannot_take_is_refused(start_cluster, rng):
    cluster = start_cluster(
        scheme="2+2/1", nodes=3, log_nodes=1, memory="256mb", more=["--log-size", "64mb"]
    )
    client = bytes_of(cluster, 0)
    kept, refused = {}, 0
    for n in range(160):
        value = rng.randbytes(MIB)
        try:
            client.set(f"v:{n}", value)
            kept[f"v:{n}"] = value
        except redis.OutOfMemoryError:
            refused += 1
    assert refused and len(kept) > 10, (refused, len(kept))
    dead = cluster.kill(0, 1)
    all_are_right(cluster, 2, kept)
    cluster.until_replaced(dead)
