"""Reads of a real HDFS through the Java client, with `paritas dev` as the cache of parity: right bytes whatever is slow,
stopped or gone."""

import json
import select
import signal
import subprocess

import pytest
import redis

from conftest import TIMEOUT_S, Background, Cluster, until
from hdfs import JAVA, Hdfs, Reader, free_ports, missing
from slow_link import SlowLink
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
# How CRC-32C changes when the last byte changes by 1.
CRC32C_OF_1 = 0xF26B8303
# How long a reader waits for steward or cache where they hang: no read takes as long.
PATIENCE_S = 10
HANGS_S = 3600
# What the store may send more because it is hedged: a share of what is read.
HEDGE_SHARE = 0.2
CLASS = "fs.hdfs.impl=io.paritas.hadoop.ParitasHdfs"


class Link:
    """A way to a server that may hang or be closed."""

    def __init__(self, port):
        self.target, self.port = ("127.0.0.1", port), free_ports(1)[0]
        self.address = f"127.0.0.1:{self.port}"
        self.relay = None
        self.open()

    def open(self):
        self.relay = self.relay or SlowLink(("127.0.0.1", self.port), self.target)
        self.relay.slow_by(0)

    def hang(self):
        self.relay.slow_by(HANGS_S)

    def stop(self):
        if self.relay:
            self.relay.close()
            self.relay = None


class SlowStore(Background):
    """All DataNodes stand still nine tenths of the time."""

    def __init__(self, hdfs):
        super().__init__()
        self.hdfs = hdfs

    def work(self):
        while not self.ending.is_set():
            for number, pause_s in ((signal.SIGSTOP, 0.18), (signal.SIGCONT, 0.02)):
                for i in range(DATANODES):
                    self.hdfs.signal(i, number)
                # No wait for something: this is the speed.
                self.ending.wait(pause_s)


class World:
    """HDFS, cache, steward and a reader, for all tests of this file: an HDFS takes many seconds to start."""

    def __init__(self, directory):
        self.directory = directory
        self.hdfs = Hdfs(directory / "hdfs", DATANODES)
        self.cluster = self.steward = self.reader = self.second = None
        self.links = {}

    def start(self):
        (self.directory / "cache").mkdir()
        (self.directory / "steward").mkdir()
        self.cluster = Cluster(self.directory / "cache", memory="192mb")
        self.steward = Steward(self.directory / "steward", f"127.0.0.1:{self.cluster.port}", free_ports(1)[0]).start()
        self.hdfs.start()
        for part, port in (("steward", self.steward.port), ("cache", self.cluster.port)):
            self.links[part] = Link(port)
        # These tests are about parity that readers make: writers make none.
        self.reader = Reader(self.hdfs, self.modes(), ["dfs.client.socket-timeout=20000", "fs.paritas.write.file.max=0"])
        return self

    @property
    def other(self):
        """A second client, for what happens during a read."""
        self.second = self.second or Reader(self.hdfs, {"vanilla": []})
        return self.second

    def modes(self):
        ours = [CLASS, "fs.paritas.read.policy=whole-file", f"fs.paritas.namespace={NAMESPACE}",
                f"fs.paritas.steward={self.steward.address}", f"fs.paritas.cache=127.0.0.1:{self.cluster.port}"]
        # A client of its own, so that no earlier test has used its budget.
        hedged = [*ours, f"fs.paritas.hedge.budget={HEDGE_SHARE}"]
        secret = self.directory / "secret"
        secret.write_text("0123456789abcdef\n", encoding="utf-8")
        far = [*ours, f"fs.paritas.steward={self.links['steward'].address}",
               f"fs.paritas.cache={self.links['cache'].address}", f"fs.paritas.timeout.ms={PATIENCE_S}000",
               "fs.paritas.read.parity=at-once"]
        return {"vanilla": [], "ours": ours, "hedged": hedged, "far": far,
                "stormed": [*hedged, "fs.paritas.timeout.ms=2002"], "off": [*ours, "fs.paritas.enabled=false"],
                "adaptive": [*ours, "fs.paritas.read.policy=adaptive", "fs.paritas.timeout.ms=2001"],
                "default": [*ours[:1], *ours[2:], "fs.paritas.timeout.ms=2003"],
                "alone": [CLASS, "fs.paritas.read.policy=whole-file"],
                "secret": [*ours, f"fs.paritas.secret.file={secret}"],
                "misspelt": [*ours, "fs.paritas.namespace=laek"]}

    def write(self, path, seed=SEED, reader=None):
        nodes = [self.hdfs.node(i) for i in range(DATANODES)]
        (reader or self.reader).ok("write", path, LENGTH, BLOCK, seed, *nodes)
        assert self.reader.ok("locations", path).split() == [nodes[i % DATANODES] for i in range(6)]

    def written_with_parity(self, path):
        self.write(path)
        self.with_parity(path)

    def with_parity(self, path, mode="ours", seed=SEED):
        before = self.reader.counters(mode)["commits"]

        def is_committed():
            # A read whose parity can't be written in time drops it; the next one writes it.
            self.reader.ok("read", mode, path, seed)
            return self.reader.counters(mode)["commits"] > before

        until(is_committed, "the parity is committed")

    def keys(self, path):
        """The keys of a file's parity subblocks, in order."""
        found = self.cluster.client().scan_iter(f"fp:{NAMESPACE}:{self.reader.ok('id', path)}:*", count=1000)
        return sorted((key for key in set(found) if not key.endswith(":version")),
                      key=lambda key: [int(part) for part in key.split(":")[-3:]])

    def refuses(self, path, mode="ours", seed=SEED):
        """A read beside a DataNode that stands still gives the right bytes, and uses no parity. The counters that grew."""
        before = self.reader.counters(mode)
        self.hdfs.signal(2, signal.SIGSTOP)
        self.reader.send("read", mode, path, seed)
        assert not self.answers_within(2), "without parity the stopped DataNode is waited for"
        self.hdfs.signal(2, signal.SIGCONT)
        answer = self.reader.answer()
        assert answer.startswith("ok"), answer
        after = grown(before, self.reader.counters(mode))
        assert after["damaged_parity"] > 0 and after["decoded_bytes"] == 0, after

    def steward_client(self):
        return redis.Redis(port=self.steward.port, protocol=2)

    def answers_within(self, seconds):
        return bool(select.select([self.reader.process.stdout], [], [], seconds)[0])

    def stop(self):
        # The links first: their processes have what was open when they began, and a reader ends when nobody has its input.
        for part in (*self.links.values(), self.reader, self.second, self.hdfs):
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


def settle(world):
    """An answer that a test has not waited for is not that of the next one."""
    while world.reader.unanswered > 0 and world.answers_within(TIMEOUT_S):
        world.reader.answer()


def heal_datanodes(world):
    for i in range(DATANODES):
        if world.hdfs.processes[f"datanode{i}"].poll() is None:
            world.hdfs.signal(i, signal.SIGCONT)
        else:
            world.hdfs.start_datanode(i)
            until(lambda i=i: world.hdfs.is_serving(i), f"DataNode {i} is back")


@pytest.fixture(autouse=True)
def heal(world):
    yield
    heal_datanodes(world)
    settle(world)
    for link in world.links.values():
        link.open()
    if world.steward.process.poll() is not None:
        world.steward.start()


def grown(before, after):
    return {name: after[name] - before[name] for name in after}


def forge(world, path):
    """Changes a byte of each parity subblock. Who can write to the cache can also make the checksum right."""
    client = world.cluster.client(decode_responses=False)
    for key in world.keys(path):
        value = bytearray(client.get(key))
        value[-1] ^= 1
        value[4:8] = (int.from_bytes(value[4:8], "little") ^ CRC32C_OF_1).to_bytes(4, "little")
        client.set(key, bytes(value))


def test_a_stopped_datanode_does_not_delay_a_read(world):
    world.written_with_parity("/stopped")
    reads = []
    for _ in range(3):
        before = world.reader.counters("ours")
        world.reader.ok("read", "ours", "/stopped", SEED)
        reads.append(grown(before, world.reader.counters("ours")))
        # Nothing is read twice.
        assert reads[-1]["delivered_bytes"] == LENGTH
        assert reads[-1]["data_bytes"] <= LENGTH
    # All nodes are about as fast as each other, so no parity is needed. On a busy machine a thread may be late, but not in each read.
    assert min(read["parity_bytes"] for read in reads) == 0, reads

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


def test_parity_of_a_reader_whose_jvm_ends_at_once_is_committed(world):
    settings = [f"-D{setting}" for setting in ("fs.defaultFS=" + world.hdfs.uri, "fs.paritas.write.file.max=0", *world.modes()["ours"])]
    def cached():
        return json.loads(world.steward.status())["mounts"][NAMESPACE]["status"]["entries_count"]["cached"]

    before = cached()
    for n in range(1, 6):
        world.write(f"/short/{n}")
        # `hdfs dfs -cat`: the JVM ends when the last byte is written.
        command = [*JAVA, "-Xmx512m", "-cp", world.hdfs.class_path, "org.apache.hadoop.fs.FsShell", *settings, "-cat", f"/short/{n}"]
        got = subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S).stdout
        assert len(got) == LENGTH
        assert cached() == before + n, f"after {n} reads"


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


def test_hadoop_counts_what_a_reader_got_in_the_thread_that_reads(world):
    """Spark's metrics are those of a task's thread."""
    world.written_with_parity("/counted")
    world.reader.ok("policy", "/striped", "RS-3-2-1024k")
    world.reader.ok("write", "/striped/counted", LENGTH, BLOCK, SEED)

    def counted():
        return [int(number) for number in world.reader.ok("statistics", "ours").split()]

    for path, coded in (("/counted", 0), ("/striped/counted", LENGTH)):
        before = counted()
        world.reader.ok("read", "ours", path, SEED)
        assert [after - number for after, number in zip(counted(), before)] == [LENGTH, LENGTH, coded], path
    before = counted()
    read = int(world.reader.ok("preads", "hedged", "/counted", SEED, MIB, 4 * MIB).split()[1])
    assert [after - number for after, number in zip(counted(), before)] == [read, read, 0]


def cat(world, path, *settings, heap="512m"):
    """`hdfs dfs -cat`. What it wrote to standard error."""
    options = [f"-D{setting}" for setting in ("fs.defaultFS=" + world.hdfs.uri, *world.modes()["ours"], *settings)]
    command = [*JAVA, f"-Xmx{heap}", "-cp", world.hdfs.class_path, "org.apache.hadoop.fs.FsShell", *options, "-cat", path]
    done = subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S)
    assert len(done.stdout) == LENGTH
    return done.stderr.decode()


def test_a_user_is_told_why_a_read_gained_nothing(world):
    world.write("/told")
    explain = "fs.paritas.explain=true"
    assert "paritas:" not in cat(world, "/told", "fs.paritas.enabled=false", explain)
    assert "paritas: nothing was gained: this read has made the parity" in cat(world, "/told", explain)
    assert "paritas: nothing was gained: the parity was there" in cat(world, "/told", explain)
    small = cat(world, "/told", explain, "fs.paritas.read.memory=1m")
    assert "paritas: nothing was gained: there was no memory for a read: raise fs.paritas.read.memory" in small
    assert small.count("a read takes 2 MiB, and 1 MiB are allowed") == 1, small
    assert "see fs.paritas.min.file" in cat(world, "/told", explain, "fs.paritas.read.policy=adaptive", "fs.paritas.min.file=1g")


def test_a_reader_in_order_is_given_stripes_when_it_has_shown_that_it_wants_them(world):
    world.write("/adaptive")
    before = world.reader.counters("adaptive")
    world.reader.ok("part", "adaptive", "/adaptive", SEED, 0, BLOCK)
    after = grown(before, world.reader.counters("adaptive"))
    assert after["stripes"] == 0 and after["data_bytes"] <= BLOCK + 4 * MIB, "a task of one block reads one block"
    world.reader.ok("read", "adaptive", "/adaptive", SEED)
    counters = grown(before, world.reader.counters("adaptive"))
    assert counters["stripes"] == 1, "the second stripe, after two blocks and more"


def test_a_small_heap_is_served(world):
    world.written_with_parity("/heap")
    believe(world, 1)
    world.hdfs.signal(1, signal.SIGSTOP)
    # Less than a block, and a fifth of a stripe.
    reader = Reader(world.hdfs, {"small": [*world.modes()["ours"], "fs.paritas.read.memory=7m"]}, heap="256m")
    try:
        for _ in range(2):
            reader.send("read", "small", "/heap", SEED)
            assert select.select([reader.process.stdout], [], [], STOPPED_S)[0], "the read waits for DataNode 1"
            assert reader.answer().startswith("ok")
    finally:
        reader.stop()


def believe(world, slow):
    """The steward is told until it calls this DataNode slow, and no other."""
    nodes = [world.hdfs.node(i) for i in range(DATANODES)]

    def is_slow():
        # So many seconds that what readers report beside it weighs little.
        samples = [word for i, node in enumerate(nodes) for word in (node, (1 if i == slow else 999) * MIB, 10_000_000_000, 0)] * 8
        world.steward_client().execute_command("FILES.REPORT", NAMESPACE, *samples)
        return json.loads(world.steward.status())["mounts"][NAMESPACE]["status"]["stragglers"] == [nodes[slow]]

    until(is_slow, "the steward calls the DataNode slow")


def test_with_default_settings_a_known_slow_datanode_delays_no_kind_of_read(world):
    path, striped = "/default", "/striped/default"
    world.written_with_parity(path)
    world.reader.ok("policy", "/striped", "RS-3-2-1024k")
    world.reader.ok("write", striped, LENGTH, BLOCK, SEED)
    world.with_parity(striped)
    for slow in (0, 2, 3):
        believe(world, slow)
        world.hdfs.signal(slow, signal.SIGSTOP)
        for command in [("read", "default", path, SEED), ("part", "default", path, SEED, slow * BLOCK, BLOCK),
                        ("read", "default", striped, SEED),
                        *(("preads", "default", path, SEED, MIB, MIB + 99, how, slow * BLOCK, slow * BLOCK + 4 * MIB)
                          for how in ("bytes", "buffer", "vectored")),
                        *(("preads", "default", striped, SEED, MIB, MIB + 99, how, 0, 4 * MIB)
                          for how in ("bytes", "buffer", "vectored"))]:
            world.reader.send(*command)
            assert world.answers_within(STOPPED_S), f"{command} waits for DataNode {slow}"
            answer = world.reader.answer()
            assert answer.startswith("ok"), (command, answer)
        world.hdfs.signal(slow, signal.SIGCONT)


def test_a_replica_on_a_datanode_that_is_not_slow_is_read_first(world):
    nodes = [world.hdfs.node(i) for i in range(DATANODES)]
    pairs = [f"{node},{nodes[(i + 1) % DATANODES]}" for i, node in enumerate(nodes)]
    world.reader.ok("write", "/replica", LENGTH, BLOCK, SEED, *pairs)
    world.with_parity("/replica")
    for slow in (1, 2):
        believe(world, slow)
        world.hdfs.signal(slow, signal.SIGSTOP)
        before = world.reader.counters("default")
        world.reader.send("read", "default", "/replica", SEED)
        assert world.answers_within(STOPPED_S), f"DataNode {slow} is waited for"
        answer = world.reader.answer()
        assert answer.startswith("ok"), answer
        world.hdfs.signal(slow, signal.SIGCONT)
        after = grown(before, world.reader.counters("default"))
        assert after["decoded_bytes"] <= BLOCK // 2, "the other replica gave the bytes"


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


def test_a_dead_datanode(world):
    world.written_with_parity("/dead")
    world.reader.ok("policy", "/striped", "RS-3-2-1024k")
    world.reader.ok("write", "/striped/dead", 6 * BLOCK, BLOCK, SEED)
    world.with_parity("/striped/dead")
    # One that has data of the striped file too, not only HDFS' own parity.
    data = [name for group in world.reader.ok("locations", "/striped/dead").split() for name in group.split(",")[:3]]
    dead = next(i for i in range(DATANODES) if world.hdfs.node(i) in data)
    world.hdfs.kill(dead)
    for path in ("/dead", "/striped/dead"):
        before = world.reader.counters("ours")
        world.reader.send("read", "ours", path, SEED)
        assert world.answers_within(STOPPED_S), f"{path} waits for a dead DataNode"
        assert world.reader.answer().startswith("ok")
        after = grown(before, world.reader.counters("ours"))
        assert after["decoded_bytes"] >= BLOCK and after["lost_reads"] == 0, after


def test_two_stopped_datanodes_are_waited_for(world):
    world.written_with_parity("/two")
    world.hdfs.signal(1, signal.SIGSTOP)
    world.hdfs.signal(2, signal.SIGSTOP)
    world.reader.send("read", "ours", "/two", SEED)
    assert not world.answers_within(2), "one parity can't stand for two blocks"
    world.hdfs.signal(1, signal.SIGCONT)
    assert world.reader.answer().startswith("ok")


def earn(world, mode, path):
    """Reads the file by position: that is what fills a JVM's budget. On a busy machine some of these reads are hedged too."""
    for _ in range(4):
        world.reader.ok("preads", mode, path, SEED, MIB, MIB)


def test_a_read_by_position_is_hedged(world):
    world.written_with_parity("/position")
    earn(world, "hedged", "/position")
    before = world.reader.counters("hedged")
    world.hdfs.signal(2, signal.SIGSTOP)
    world.reader.ok("pread", "hedged", "/position", SEED, 2 * BLOCK + 99, MIB)
    after = grown(before, world.reader.counters("hedged"))
    assert (after["hedge_wins"], after["hedges_declined"]) == (1, 0), after
    # Three other blocks. Of parity, the two subblocks that the range touches.
    assert (after["hedge_bytes"], after["parity_bytes"]) == (3 * MIB, 2 * MIB)


def test_reads_by_position_of_one_stream_while_a_datanode_stands_still(world):
    world.written_with_parity("/positions")
    earn(world, "hedged", "/positions")
    before = world.reader.counters("hedged")
    world.hdfs.signal(3, signal.SIGSTOP)
    world.reader.send("preads", "hedged", "/positions", SEED, MIB // 2, 4 * MIB)
    assert world.answers_within(STOPPED_S)
    assert world.reader.answer().startswith("ok")
    assert grown(before, world.reader.counters("hedged"))["hedge_wins"] >= 2, "two reads in the block of DataNode 3"
    world.hdfs.signal(3, signal.SIGCONT)
    world.reader.ok("preads", "hedged", "/positions", SEED, 1000, MIB)


def test_hedges_of_a_slow_store_stay_within_their_budget(world):
    world.written_with_parity("/storm")
    world.reader.ok("preads", "stormed", "/storm", SEED, MIB, MIB)
    before, sent = world.reader.counters("stormed"), world.hdfs.bytes_read()
    slow = SlowStore(world.hdfs)
    slow.start()
    try:
        read = int(world.reader.ok("preads", "stormed", "/storm", SEED, MIB, MIB).split()[1])
    finally:
        slow.stop()
        heal_datanodes(world)
    after = grown(before, world.reader.counters("stormed"))
    most = HEDGE_SHARE * 2 * read
    assert after["hedges"] > 0 and after["hedges_declined"] > 0, after
    assert after["hedge_bytes"] <= most, after
    # What was really asked for: not more than was promised.
    assert after["data_bytes"] <= read + after["hedge_bytes"], after
    assert world.hdfs.bytes_read() - sent <= read + most, "as the DataNodes count it"


def test_short_jvms_beside_a_slow_store_ask_it_for_nothing_more(world):
    world.written_with_parity("/short-jvms")
    jvms = [Reader(world.hdfs, {"ours": world.modes()["ours"]}, heap="256m") for _ in range(5)]
    slow = SlowStore(world.hdfs)
    try:
        sent = world.hdfs.bytes_read()
        slow.start()
        for jvm in jvms:
            jvm.send("preads", "ours", "/short-jvms", SEED, MIB, BLOCK + MIB)
        read = sum(int(jvm.answer().split()[2]) for jvm in jvms)
        hedges = sum(jvm.counters("ours")["hedges"] for jvm in jvms)
    finally:
        slow.stop()
        heal_datanodes(world)
        for jvm in jvms:
            jvm.stop()
    more = world.hdfs.bytes_read() - sent - read
    print(f"{read} bytes read, {more} more sent by DataNodes, {hedges} hedges")
    assert hedges == 0 and more <= HEDGE_SHARE * read


def test_the_steward_grants_a_new_jvm_what_a_slow_datanode_costs(world):
    world.written_with_parity("/granted")
    jvm = Reader(world.hdfs, {"ours": world.modes()["ours"]}, heap="256m")

    def credit():
        return json.loads(world.steward.status())["mounts"][NAMESPACE]["status"]["credit_bytes"]

    try:
        believe(world, 2)
        before = credit()
        world.hdfs.signal(2, signal.SIGSTOP)
        jvm.send("pread", "ours", "/granted", SEED, 2 * BLOCK + 99, MIB)
        assert select.select([jvm.process.stdout], [], [], STOPPED_S)[0], "the read waits for DataNode 2"
        assert jvm.answer().startswith("ok")
        assert jvm.counters("ours")["hedge_wins"] == 1
        assert credit() - before == 4 * 3 * MIB, "what four such reads cost"
    finally:
        jvm.stop()


def test_steward_and_cache_that_hang_or_are_away(world):
    world.written_with_parity("/alone")
    for part in ("steward", "cache"):
        for trouble in (Link.hang, Link.stop):
            trouble(world.links[part])
            for _ in range(2):
                seconds = world.reader.seconds("read", "far", "/alone", SEED)
                assert seconds < PATIENCE_S, f"{part} is waited for"
            world.links[part].open()

    def uses_parity_again():
        before = world.reader.counters("far")
        world.reader.ok("read", "far", "/alone", SEED)
        return grown(before, world.reader.counters("far"))["parity_bytes"] > 0

    until(uses_parity_again, "steward and cache are used when they are back")


def test_a_wrong_namespace_is_logged_once(world):
    world.write("/misspelt")
    for _ in range(2):
        world.reader.ok("read", "misspelt", "/misspelt", SEED)
    lines = [line for line in world.reader.log.read_text(encoding="utf-8").splitlines() if "laek" in line]
    assert len(lines) == 1 and "WARNING" in lines[0] and "see fs.paritas.namespace" in lines[0], lines


def test_damaged_parity_is_not_used_and_made_again(world):
    world.written_with_parity("/damaged")
    client = world.cluster.client(decode_responses=False)
    keys = world.keys("/damaged")
    assert len(keys) == PARITY // MIB
    for key in keys:
        value = bytearray(client.get(key))
        value[len(value) // 2] ^= 1
        client.set(key, bytes(value))
    world.refuses("/damaged")

    world.with_parity("/damaged")
    world.hdfs.signal(2, signal.SIGSTOP)
    world.reader.send("read", "ours", "/damaged", SEED)
    assert world.answers_within(STOPPED_S), "the parity has been made again"
    assert world.reader.answer().startswith("ok")


def test_parity_of_another_subblock_is_not_used(world):
    world.written_with_parity("/exchanged")
    client, keys = world.cluster.client(decode_responses=False), world.keys("/exchanged")
    for one, other in zip(keys[::2], keys[1::2]):
        first, second = client.get(one), client.get(other)
        assert len(first) == len(second)
        client.set(one, second)
        client.set(other, first)
    world.refuses("/exchanged")


@pytest.mark.parametrize("what", ["subblocks", "version"])
def test_parity_of_another_file_is_not_used(world, what):
    source, target = f"/moved/{what}/from", f"/moved/{what}/to"
    world.written_with_parity(source)
    world.write(target, OTHER_SEED)
    world.with_parity(target, seed=OTHER_SEED)
    client = world.cluster.client(decode_responses=False)
    for one, other in zip(world.keys(source), world.keys(target)):
        if what == "version":
            one, other = (key.rsplit(":", 3)[0] + ":version" for key in (one, other))
        client.set(other, client.get(one))
    world.refuses(target, seed=OTHER_SEED)


def test_parity_that_a_stranger_has_changed_is_not_used(world):
    world.write("/stranger")
    world.with_parity("/stranger", "secret")
    forge(world, "/stranger")
    world.refuses("/stranger", "secret")
    world.with_parity("/stranger", "secret")
    world.hdfs.signal(2, signal.SIGSTOP)
    world.reader.send("read", "secret", "/stranger", SEED)
    assert world.answers_within(STOPPED_S), "the parity has been made again"
    assert world.reader.answer().startswith("ok")


def test_decoded_bytes_are_compared_with_the_checksums_of_another_replica(world):
    nodes = [world.hdfs.node(i) for i in range(DATANODES)]
    pairs = [f"{node},{nodes[(i + 1) % DATANODES]}" for i, node in enumerate(nodes)]
    world.reader.ok("write", "/twice", LENGTH, BLOCK, SEED, *pairs)
    world.with_parity("/twice")

    def read_beside_each():
        before = world.reader.counters("ours")
        for i in range(DATANODES):
            world.hdfs.signal(i, signal.SIGSTOP)
            world.reader.send("read", "ours", "/twice", SEED)
            world.answers_within(1)
            world.hdfs.signal(i, signal.SIGCONT)
            answer = world.reader.answer()
            assert answer.startswith("ok"), answer
        return grown(before, world.reader.counters("ours"))

    right = read_beside_each()
    assert right["wrong_decodes"] == 0 and right["decoded_bytes"] > right["unchecked_bytes"], right
    # A change with a right checksum, which a client without a secret cannot see.
    forge(world, "/twice")
    wrong = read_beside_each()
    assert wrong["wrong_decodes"] > 0 and wrong["damaged_parity"] == 0, wrong


def test_a_file_replaced_while_it_is_read(world):
    world.written_with_parity("/replaced")
    other = world.other
    world.reader.send("slow", "ours", "/replaced", SEED, MIB, 50)
    other.ok("delete", "/replaced")
    other.ok("write", "/replaced", LENGTH, BLOCK, OTHER_SEED)
    answer = world.reader.answer()
    assert answer.startswith(("ok", "error")), answer
    for _ in range(2):
        world.reader.ok("read", "ours", "/replaced", OTHER_SEED)


def test_a_file_appended_to_while_it_is_read(world):
    world.written_with_parity("/appended")
    other = world.other
    world.reader.send("slow", "ours", "/appended", SEED, MIB, 50)
    other.ok("append", "/appended", 2 * BLOCK, SEED)
    assert world.reader.answer().startswith("ok"), "the bytes that the file had"
    world.with_parity("/appended")
    world.hdfs.signal(2, signal.SIGSTOP)
    before = world.reader.counters("ours")
    world.reader.send("read", "ours", "/appended", SEED)
    assert world.answers_within(STOPPED_S), "the file as it is now has parity of its own"
    assert world.reader.answer().split()[0::2] == ["ok", str(LENGTH + 2 * BLOCK)]
    assert grown(before, world.reader.counters("ours"))["decoded_bytes"] >= BLOCK


def test_the_steward_dies_during_a_read(world):
    world.written_with_parity("/orphan")
    world.reader.send("slow", "ours", "/orphan", SEED, MIB, 20)
    world.steward.kill()
    assert world.reader.answer().startswith("ok")
    before = world.reader.counters("ours")
    world.reader.ok("read", "ours", "/orphan", SEED)
    assert grown(before, world.reader.counters("ours"))["opens_cached"] == 0

    world.steward.start()

    def uses_parity_again():
        world.reader.ok("read", "ours", "/orphan", SEED)
        return grown(before, world.reader.counters("ours"))["opens_cached"] > 0

    until(uses_parity_again, "the new steward knows of the parity")


def test_a_cache_that_lost_everything(world):
    world.written_with_parity("/lost")
    world.cluster.client().flushall()
    before = world.reader.counters("ours")
    world.reader.ok("read", "ours", "/lost", SEED)
    after = grown(before, world.reader.counters("ours"))
    assert after["delivered_bytes"] == LENGTH and after["decoded_bytes"] == 0
