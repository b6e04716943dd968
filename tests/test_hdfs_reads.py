"""Reads of a real HDFS through the Java client, with `paritas dev` as the cache of parity: right bytes whatever is slow,
stopped or gone."""

import select
import signal

import pytest

from conftest import Cluster, until
from hdfs import Hdfs, Reader, free_ports, missing
from steward import NAMESPACE, Steward

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(missing() is not None, reason=str(missing()))]

DATANODES = 5
K = 4
MIB = 1 << 20
BLOCK = 8 * MIB
# A stripe, and a second one of a block and a bit.
LENGTH = 5 * BLOCK + 12_345
# Parity of both stripes.
PARITY = 2 * BLOCK
# How long a DataNode stands still. What waits for it takes longer, what does not is done in a fraction of it.
STOPPED_S = 8
SEED, OTHER_SEED = 7, 8
CLASS = "fs.hdfs.impl=io.paritas.hadoop.ParitasHdfs"


class World:
    """HDFS, cache, steward and a reader, for all tests of this file: an HDFS takes many seconds to start."""

    def __init__(self, directory):
        self.directory = directory
        self.hdfs = Hdfs(directory / "hdfs", DATANODES)
        self.cluster = self.steward = self.reader = None

    def start(self):
        (self.directory / "cache").mkdir()
        (self.directory / "steward").mkdir()
        self.cluster = Cluster(self.directory / "cache", memory="192mb")
        self.steward = Steward(self.directory / "steward", f"127.0.0.1:{self.cluster.port}", free_ports(1)[0]).start()
        self.hdfs.start()
        self.reader = Reader(self.hdfs, self.modes(), ["dfs.client.socket-timeout=20000"])
        return self

    def modes(self):
        ours = [CLASS, "fs.paritas.read.policy=whole-file", f"fs.paritas.namespace={NAMESPACE}",
                f"fs.paritas.steward={self.steward.address}", f"fs.paritas.cache=127.0.0.1:{self.cluster.port}"]
        # A client of its own, so that no earlier test has used its budget.
        hedged = [*ours, "fs.paritas.hedge.budget=0.2"]
        return {"vanilla": [], "ours": ours, "hedged": hedged, "off": [*ours, "fs.paritas.enabled=false"],
                "adaptive": [*ours, "fs.paritas.read.policy=adaptive", "fs.paritas.timeout.ms=2001"],
                "alone": [CLASS, "fs.paritas.read.policy=whole-file"]}

    def write(self, path, seed=SEED, reader=None):
        nodes = [self.hdfs.node(i) for i in range(DATANODES)]
        (reader or self.reader).ok("write", path, LENGTH, BLOCK, seed, *nodes)
        assert self.reader.ok("locations", path).split() == [nodes[i % DATANODES] for i in range(6)]

    def written_with_parity(self, path):
        self.write(path)
        self.with_parity(path)

    def with_parity(self, path):
        before = self.reader.counters("ours")["commits"]

        def is_committed():
            # A read whose parity can't be written in time drops it; the next one writes it.
            self.reader.ok("read", "ours", path, SEED)
            return self.reader.counters("ours")["commits"] > before

        until(is_committed, "the parity is committed")

    def answers_within(self, seconds):
        return bool(select.select([self.reader.process.stdout], [], [], seconds)[0])

    def stop(self):
        for part in (self.reader, self.hdfs):
            if part is not None:
                part.stop()
        if self.steward is not None:
            self.steward.kill()
        if self.cluster is not None:
            self.cluster.stop()


@pytest.fixture(scope="module", name="world")
def start_world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("files"))
    try:
        yield world.start()
    finally:
        world.stop()


@pytest.fixture(autouse=True)
def heal(world):
    yield
    for i in range(DATANODES):
        world.hdfs.signal(i, signal.SIGCONT)
    if world.steward.process.poll() is not None:
        world.steward.start()


def grown(before, after):
    return {name: after[name] - before[name] for name in after}


def test_a_stopped_datanode_does_not_delay_a_read(world):
    world.written_with_parity("/stopped")
    before = world.reader.counters("ours")
    world.reader.ok("read", "ours", "/stopped", SEED)
    fine = grown(before, world.reader.counters("ours"))
    # Nothing is read twice, and of the parity no more than there is.
    assert fine["delivered_bytes"] == LENGTH
    assert 0 < fine["parity_bytes"] <= PARITY
    assert fine["data_bytes"] <= LENGTH

    world.hdfs.signal(2, signal.SIGSTOP)
    before = world.reader.counters("ours")
    ours = world.reader.seconds("read", "ours", "/stopped", SEED)
    slow = grown(before, world.reader.counters("ours"))
    assert slow["delivered_bytes"] == LENGTH
    assert slow["decoded_bytes"] >= BLOCK, "the stopped node's block was decoded"
    assert slow["parity_bytes"] <= PARITY
    assert slow["data_bytes"] <= LENGTH

    world.reader.send("read", "vanilla", "/stopped", SEED)
    assert not world.answers_within(STOPPED_S), "Hadoop's own stream waits"
    world.hdfs.signal(2, signal.SIGCONT)
    vanilla = world.reader.answer()
    assert vanilla.startswith("ok")
    vanilla = int(vanilla.split()[1]) / 1e9
    print(f"with one DataNode stopped for {STOPPED_S} s: {vanilla:.2f} s, with parity {ours:.2f} s")
    assert ours < vanilla / 2


def test_all_ways_to_read_give_the_bytes(world):
    world.written_with_parity("/ways")
    for mode in ("vanilla", "off", "alone", "ours"):
        world.reader.ok("read", mode, "/ways", SEED)
        world.reader.ok("buffer", mode, "/ways", SEED)
        world.reader.ok("part", mode, "/ways", SEED, BLOCK + 3, 2 * BLOCK)
        world.reader.ok("part", mode, "/ways", SEED, 0, 100)
        world.reader.ok("part", mode, "/ways", SEED, LENGTH - 5, 100)
        world.reader.ok("pread", mode, "/ways", SEED, BLOCK - 7, 2 * BLOCK)
    assert world.reader.counters("ours")["lost_reads"] == 0


def test_a_reader_in_order_is_given_stripes_when_it_has_shown_that_it_wants_them(world):
    world.write("/adaptive")
    world.reader.ok("part", "adaptive", "/adaptive", SEED, 0, BLOCK)
    assert world.reader.counters("adaptive")["stripes"] == 0, "a task of one block reads one block"
    world.reader.ok("read", "adaptive", "/adaptive", SEED)
    counters = world.reader.counters("adaptive")
    assert counters["stripes"] == 1, "the second stripe, after two blocks and more"


def test_a_file_with_an_erasure_coding_policy(world):
    world.reader.ok("policy", "/striped", "RS-3-2-1024k")
    # A whole group of three data blocks, and a short one.
    length = 4 * BLOCK + 12_345
    world.reader.ok("write", "/striped/file", length, BLOCK, SEED)
    world.with_parity("/striped/file")
    before = world.reader.counters("ours")
    for i in range(DATANODES):
        world.hdfs.signal(i, signal.SIGSTOP)
        world.reader.send("read", "ours", "/striped/file", SEED)
        assert world.answers_within(STOPPED_S), f"DataNode {i} is waited for"
        assert world.reader.answer().startswith("ok")
        world.hdfs.signal(i, signal.SIGCONT)
    after = grown(before, world.reader.counters("ours"))
    assert after["delivered_bytes"] == DATANODES * length and after["lost_reads"] == 0
    assert after["decoded_bytes"] >= 3 * BLOCK, "each of the three data blocks was decoded once"
    world.reader.ok("part", "ours", "/striped/file", SEED, 3 * BLOCK + 5, BLOCK)
    world.reader.ok("part", "ours", "/striped/file", SEED, 2 * MIB + 1, 3 * MIB)


def test_two_stopped_datanodes_are_waited_for(world):
    world.written_with_parity("/two")
    world.hdfs.signal(1, signal.SIGSTOP)
    world.hdfs.signal(2, signal.SIGSTOP)
    world.reader.send("read", "ours", "/two", SEED)
    assert not world.answers_within(2), "one parity can't stand for two blocks"
    world.hdfs.signal(1, signal.SIGCONT)
    assert world.reader.answer().startswith("ok")


def test_a_read_by_position_is_hedged(world):
    world.written_with_parity("/position")
    world.hdfs.signal(2, signal.SIGSTOP)
    world.reader.ok("pread", "hedged", "/position", SEED, 2 * BLOCK + 99, MIB)
    after = world.reader.counters("hedged")
    assert (after["hedge_wins"], after["hedges_declined"]) == (1, 0), after
    # Three other blocks, and the two subblocks of parity that the range touches.
    assert after["hedge_bytes"] == 3 * MIB + 2 * MIB


def test_a_file_replaced_while_it_is_read(world):
    world.written_with_parity("/replaced")
    other = Reader(world.hdfs, {"vanilla": []})
    try:
        world.reader.send("slow", "ours", "/replaced", SEED, MIB, 50)
        other.ok("delete", "/replaced")
        other.ok("write", "/replaced", LENGTH, BLOCK, OTHER_SEED)
        answer = world.reader.answer()
        assert answer.startswith(("ok", "error")), answer
        for _ in range(2):
            world.reader.ok("read", "ours", "/replaced", OTHER_SEED)
    finally:
        other.stop()


def test_the_steward_dies_during_a_read(world):
    world.written_with_parity("/orphan")
    world.reader.send("slow", "ours", "/orphan", SEED, MIB, 20)
    world.steward.kill()
    assert world.reader.answer().startswith("ok")
    before = world.reader.counters("ours")
    world.reader.ok("read", "ours", "/orphan", SEED)
    assert grown(before, world.reader.counters("ours"))["parity_bytes"] == 0

    world.steward.start()

    def uses_parity_again():
        world.reader.ok("read", "ours", "/orphan", SEED)
        return grown(before, world.reader.counters("ours"))["parity_bytes"] > 0

    until(uses_parity_again, "the new steward knows of the parity")


def test_a_cache_that_lost_everything(world):
    world.written_with_parity("/lost")
    world.cluster.client().flushall()
    before = world.reader.counters("ours")
    world.reader.ok("read", "ours", "/lost", SEED)
    after = grown(before, world.reader.counters("ours"))
    assert after["delivered_bytes"] == LENGTH and after["decoded_bytes"] == 0
