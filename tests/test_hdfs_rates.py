"""A slow DataNode of a real HDFS that the steward finds by the DataNodes' own counters: no client reports a rate."""

import json
import signal

import pytest

from conftest import Background, until
from hdfs import Hdfs, Reader, free_ports, missing
from steward import NAMESPACE, Steward
from test_files import Store

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(missing() is not None, reason=str(missing()))]

DATANODES = 4
MIB = 1 << 20
# One request brings a block. Smaller ones say nothing.
BLOCK = 8 * MIB
SMALL = 2 * MIB
SEED = 7
# A rate needs eight requests of each node.
READS = 8
SLOW = 2
# The same HDFS, and nobody asks its DataNodes.
OFF = "off"


class SlowNode(Background):
    """A DataNode stands still most of the time. It runs for less time than a block takes, or no read would last longer."""

    def __init__(self, hdfs, i):
        super().__init__()
        self.hdfs, self.i = hdfs, i

    def work(self):
        while not self.ending.is_set():
            for number, pause_s in ((signal.SIGSTOP, 0.05), (signal.SIGCONT, 0.002)):
                self.hdfs.signal(self.i, number)
                # No wait for something: this is the speed.
                self.ending.wait(pause_s)
        self.hdfs.signal(self.i, signal.SIGCONT)


class World:
    def __init__(self, directory):
        self.directory = directory
        self.hdfs = Hdfs(directory / "hdfs", DATANODES)
        self.store = self.steward = self.reader = None

    def start(self):
        self.hdfs.start()
        for name in ("cache", "steward"):
            (self.directory / name).mkdir()
        self.store = Store(self.directory / "cache")
        # Nothing limits the others' rates, so they differ by half. Among four nodes the default rule (`mad`) then often names none.
        mounts = {NAMESPACE: {"blocks": 100, "period_ms": 500, "estimator": "leave-one-out", "namenode_http": f"http://127.0.0.1:{self.hdfs.http}"},
                  OFF: {"blocks": 100, "period_ms": 500}}
        cache = f"127.0.0.1:{self.store.port}"
        self.steward = Steward(self.directory / "steward", cache, free_ports(1)[0], mounts=mounts).start()
        # Hadoop's own client alone.
        self.reader = Reader(self.hdfs, {"vanilla": []}, ["dfs.client.socket-timeout=60000"])
        return self

    def write(self, path, block):
        self.reader.ok("write", path, DATANODES * block, block, SEED, *(self.hdfs.node(i) for i in range(DATANODES)))
        assert self.reader.ok("locations", path).split() == [self.hdfs.node(i) for i in range(DATANODES)]

    def read(self, path):
        for _ in range(READS):
            self.reader.ok("read", "vanilla", path, SEED)

    def status(self, mount=NAMESPACE):
        return json.loads(self.steward.status())["mounts"][mount].get("status") or {}

    def polls(self):
        return self.status().get("datanodes") or {}

    def all_asked(self):
        """Waits until each DataNode has told its counters again. Theirs are a second old, so it takes some rounds."""
        before = self.polls().get("answers", 0)
        until(lambda: self.polls().get("answers", 0) >= before + 6 * DATANODES, lambda: f"DataNodes are asked: {self.polls()}")

    def stop(self):
        if self.reader:
            self.reader.stop()
        if self.steward:
            self.steward.kill()
        if self.store:
            self.store.stop()
        self.hdfs.stop()


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    try:
        yield made.start()
    finally:
        made.stop()


def test_a_slow_datanode_is_found_though_no_client_reports(world):
    nodes = {world.hdfs.node(i) for i in range(DATANODES)}
    world.all_asked()
    assert world.polls()["nodes"] == DATANODES and world.polls()["list_error"] is None, world.polls()
    world.write("/small", SMALL)
    world.write("/large", BLOCK)
    world.read("/small")
    world.all_asked()
    assert world.status()["nodes_with_rate"] == 0, "requests of 2 MiB say nothing"

    def slow_is_named():
        # The others' rates differ on a busy machine, and less after more reads.
        world.read("/large")
        return world.status()["nodes_with_rate"] == DATANODES and world.status()["stragglers"] == [world.hdfs.node(SLOW)]

    slow = SlowNode(world.hdfs, SLOW)
    slow.start()
    try:
        until(slow_is_named, lambda: f"the slow one is named: {world.status()}")
    finally:
        slow.stop()
    status = world.status()
    print(json.dumps({"rates": status["rates"], "datanodes": status["datanodes"]}, indent=1))
    # The names are those that clients use, and no client has told a rate.
    assert set(status["rates"]) == nodes and status["samples"] == 0
    assert set(status["rate_sources"].values()) == {"node"}
    # Where nobody asks the DataNodes, there is nothing.
    off = world.status(OFF)
    assert off["datanodes"] is None and off["nodes_with_rate"] == 0 and off["stragglers"] == []

    # It starts again, and its counters from zero. That is no rate, so its last one stays.
    world.all_asked()
    before = world.polls()["intervals"]
    world.hdfs.kill(SLOW)
    world.hdfs.start_datanode(SLOW)
    until(lambda: world.hdfs.is_serving(SLOW), "the DataNode is back")
    # A DataNode that has not answered is asked again after 10 s. Its first answer is where the count begins.
    until(lambda: world.polls()["failures"] > 0 and world.polls()["failure"] is None, lambda: f"it answers: {world.polls()}")
    world.all_asked()
    assert world.polls()["intervals"] == before, world.polls()
    # What it sends then counts, beside the slow requests of the last minute.
    slow_rate = status["rates"][world.hdfs.node(SLOW)]
    world.read("/large")
    until(lambda: world.status()["rates"].get(world.hdfs.node(SLOW), 0) > 1.2 * slow_rate, lambda: f"it is faster: {world.status()}")
