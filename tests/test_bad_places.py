"""A full disk, a wall clock that jumps, a coordinator of another cluster: clear messages, and no data is lost."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import redis

from conftest import TIMEOUT_S, free_base, once_done, serves, until

SMALL_DISK_KB = 3_072


class ByHand:
    """A coordinator and nodes of a 2+1 cluster, each a process of its own. Ended processes are not restarted."""

    def __init__(self, run, store, spares=0, begin=True, **options):
        self.run, self.store, self.options = run, store, options
        self.base = free_base(3 + spares)
        self.listen = f"127.0.0.1:{self.base + 20_000}"
        self.spares = spares
        self.coordinator = self.start_coordinator(store)
        self.nodes = []
        if begin:
            self.start_nodes()
            self.until_served()

    def start_nodes(self):
        self.nodes = [self.start_node(node) for node in range(3 + self.spares)]

    def until_served(self):
        until(lambda: all(serves(self.base + node) for node in range(3)), "all nodes to serve")

    def start_coordinator(self, store):
        settings = f'listen = "{self.listen}"\nstore = "{store}"\nscheme = "2+1"\nmemory = "64mb"\n'
        return self.run("coordinator", settings + f"spares = {self.spares}\n", **self.options)

    def start_node(self, node):
        settings = f'id = {node}\nport = {self.base + node}\nmemory = "64mb"\ncoordinator = ["{self.listen}"]\n'
        return self.run("node", settings, **self.options)

    def client(self, node=0):
        return redis.Redis(port=self.base + node, decode_responses=True, socket_timeout=TIMEOUT_S)


def ended(process):
    process.terminate()
    process.wait(timeout=TIMEOUT_S)


def write(client, prefix, count=300):
    values = {f"{prefix}:{n}": f"value {n}" for n in range(count)}
    for key, value in values.items():
        assert once_done(lambda key=key, value=value: client.set(key, value))
    return values


def all_there(client, values):
    try:
        return [client.get(key) for key in values] == list(values.values())
    except redis.RedisError:
        return False


def says(process, text):
    return text in process.log.read_text(encoding="utf-8")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of some MB that a test can fill."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    place = tmp_path / "small"
    place.mkdir()
    size = f"size={SMALL_DISK_KB}k"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "paritas-test", place], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def fill(place):
    """Fills a file system completely. Returns the file to remove."""
    ballast = place / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(b"\0" * size) == size:
                    pass
            except OSError:
                pass
    return ballast


def test_a_coordinator_with_a_full_disk_decides_again_when_there_is_room(run, small_disk):
    """The store of a new cluster has free pages: the lists of 3 nodes fit into them, those of 24 nodes do not."""
    cluster = ByHand(run, small_disk / "store", spares=21, begin=False)
    until(lambda: says(cluster.coordinator, "coordinator runs"), "the coordinator")
    ballast = fill(small_disk)
    cluster.start_nodes()
    until(lambda: says(cluster.coordinator, "the store cannot be written"), "the coordinator to say that its store fails")
    assert says(cluster.coordinator, "No space left on device")
    assert cluster.coordinator.poll() is None and [node.poll() for node in cluster.nodes] == [None] * 24
    ballast.unlink()
    cluster.until_served()
    client = cluster.client()
    values = write(client, "after")
    until(lambda: all_there(client, values), "every value")
    # All commits are on the disk.
    ended(cluster.coordinator)
    second = cluster.start_coordinator(cluster.store)
    until(lambda: says(second, "has registered"), "nodes to register again")


def test_a_coordinator_that_starts_on_a_full_disk_says_so_and_harms_nothing(run, small_disk):
    cluster = ByHand(run, small_disk / "store")
    client = cluster.client()
    values = write(client, "start")
    ended(cluster.coordinator)
    ballast = fill(small_disk)
    second = cluster.start_coordinator(cluster.store)
    # If there is still space for another revision, the disk does not count as full.
    if until(lambda: second.poll() is not None or says(second, "coordinator runs"), "a verdict") and second.poll():
        assert says(second, "No space left on device"), second.log.read_text()
    else:
        ended(second)
    assert all_there(client, values), "nodes must serve without a coordinator"
    ballast.unlink()
    third = cluster.start_coordinator(cluster.store)
    until(lambda: says(third, "has registered"), "nodes to register again")
    assert all_there(client, values | write(client, "again"))


def test_a_coordinator_with_another_store_takes_nothing_with_it(run, tmp_path):
    """The operator names a wrong file. A new cluster begins there, while the nodes' data belongs to the old one."""
    cluster = ByHand(run, tmp_path / "right")
    client = cluster.client()
    values = write(client, "foreign")
    ended(cluster.coordinator)
    wrong = cluster.start_coordinator(tmp_path / "wrong")
    for node in cluster.nodes:
        until(lambda node=node: says(node, "the coordinator is of another cluster"), "each node to say so")
    assert [node.poll() for node in cluster.nodes] == [None] * 3
    assert all_there(client, values | write(client, "meanwhile"))
    ended(wrong)
    right = cluster.start_coordinator(tmp_path / "right")
    until(lambda: says(right, "has registered"), "nodes to register again")
    assert all_there(client, values | write(client, "again"))


def test_a_coordinator_with_yesterdays_store_takes_nothing_with_it(run, tmp_path):
    store = tmp_path / "store"
    cluster = ByHand(run, store, spares=1)
    client = cluster.client()
    values = write(client, "old")
    ended(cluster.coordinator)
    shutil.copy(store, tmp_path / "backup")
    second = cluster.start_coordinator(store)
    until(lambda: says(second, "has registered"), "nodes to register")
    cluster.nodes[2].kill()
    until(lambda: says(second, "moves from") and all_there(client, values), "the spare in the dead node's place")
    ended(second)
    yesterday = cluster.start_coordinator(tmp_path / "backup")
    node = cluster.nodes[0]
    until(lambda: says(node, "not the cluster's newest"), "a node to say that the store is behind")
    assert all_there(client, values)
    ended(yesterday)
    right = cluster.start_coordinator(store)
    until(lambda: says(right, "has registered"), "nodes to register again")
    # The spare may not have had full redundancy when the second coordinator ended: writes are refused until it has.
    assert all_there(client, values | write(client, "again"))


def libfaketime():
    return next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)


@pytest.fixture
def wall(tmp_path):
    """Sets the wall clock, and no other clock, of processes with its environment."""
    library = libfaketime()
    if library is None:
        pytest.skip("no libfaketime (Debian: libfaketime): wall clocks cannot be moved")
    file = tmp_path / "wall"

    def move(offset):
        file.write_text(offset, encoding="utf-8")

    move("+0")
    move.environment = os.environ | {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    yield move


@pytest.mark.measures_time
def test_a_wall_clock_that_jumps_ends_what_expires_and_nothing_else(run, tmp_path, wall):
    cluster = ByHand(run, tmp_path / "store", env=wall.environment)
    client = cluster.client()
    values = write(client, "stays")
    assert client.set("soon", "x", ex=1_000) and client.set("late", "x", ex=100_000)
    until(lambda: '"begins empty' not in status_of(cluster), "all positions to have begun")
    epochs = epochs_of(status_of(cluster))
    wall("+2h")
    until(lambda: client.get("soon") is None, "what expires within two hours to be gone")
    assert 0 < client.ttl("late") <= 92_800
    assert all_there(client, values | write(client, "ahead"))
    # Back, further than before: an expired key stays deleted once it was found expired.
    wall("-3d")
    until(lambda: client.ttl("late") > 300_000, "the clock to have moved")
    assert client.get("soon") is None
    assert all_there(client, values | write(client, "behind"))
    wall("-60y")
    assert all_there(client, values | write(client, "before 1970"))
    assert client.set("now", "x", px=50_000) and client.get("now") == "x"
    wall("+0")
    assert all_there(client, values)
    # No node was suspected.
    assert epochs_of(status_of(cluster)) == epochs
    assert [node.poll() for node in cluster.nodes] == [None] * 3


def status_of(cluster):
    return cluster.client(1).execute_command("PARITAS.STATUS")


def epochs_of(text):
    return [(entry["id"], entry["epoch"]) for entry in json.loads(text)["lists"]]
