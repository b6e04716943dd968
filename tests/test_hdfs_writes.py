"""Parity of files of a real HDFS that is made while they are written, or ahead of their readers: right bytes, and never parity
of a file that is not what was written."""

import json
import signal
import subprocess

import pytest
import redis

from conftest import TIMEOUT_S, Cluster, until
from hdfs import JAVA, Hdfs, Reader, free_ports, missing
from steward import NAMESPACE, Steward
from test_hdfs_reads import BLOCK, CLASS, DATANODES, LENGTH, MIB, PARITY, SEED, STOPPED_S, Link, grown, heal_datanodes
from writer import Worker, Writer

pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(missing() is not None, reason=str(missing()))]

# What a writer waits for steward or cache where they hang. The file below is written in a fraction of a second.
PATIENCE_S = 2
# A steward deletes the keys of a writer that does not renew its pin after 60 s.
PIN_S = 90
SUBBLOCKS = PARITY // MIB
# An erasure-coding policy: a row of cells and a block group of its.
POLICY, UNITS = "RS-3-2-1024k", 3
ROW, GROUP = UNITS * MIB, UNITS * BLOCK
CONTEXT = "fs.AbstractFileSystem.hdfs.impl=io.paritas.hadoop.ParitasHdfsContext"
HEADER_BYTES = 24
# A worker looks for a file half a minute after it was last seen, among the other files of these tests.
CHECKED_S = 90


class World:
    """HDFS, cache, steward, a writer and a reader, for all tests of this file."""

    def __init__(self, directory):
        self.directory = directory
        self.hdfs = Hdfs(directory / "hdfs", DATANODES)
        self.cluster = self.steward = self.writer = self.reader = None
        self.links = {}

    def start(self):
        (self.directory / "cache").mkdir()
        (self.directory / "steward").mkdir()
        self.cluster = Cluster(self.directory / "cache", memory="192mb")
        self.steward = Steward(self.directory / "steward", f"127.0.0.1:{self.cluster.port}", free_ports(1)[0], blocks=200).start()
        self.hdfs.start()
        for part, port in (("steward", self.steward.port), ("cache", self.cluster.port)):
            self.links[part] = Link(port)
        self.writer = self.start_writer()
        # With Hadoop's default of 60 s a read that waits for a stopped node would outlast the test, and not be an error of it.
        self.reader = Reader(self.hdfs, {"vanilla": [], "ours": self.ours(), "short": [*self.ours(), "fs.paritas.min.file=1"]},
                             ["dfs.client.socket-timeout=20000", "fs.paritas.write.file.max=0"])
        self.reader.ok("policy", "/striped", POLICY)
        return self

    def ours(self):
        return [CLASS, CONTEXT, "fs.paritas.read.policy=whole-file", f"fs.paritas.namespace={NAMESPACE}",
                f"fs.paritas.steward={self.steward.address}", f"fs.paritas.cache=127.0.0.1:{self.cluster.port}"]

    def start_writer(self):
        far = [*self.ours(), f"fs.paritas.steward={self.links['steward'].address}",
               f"fs.paritas.cache={self.links['cache'].address}", f"fs.paritas.timeout.ms={PATIENCE_S}000"]
        # Little room for each file: the cache has that of all files of these tests.
        little = "fs.paritas.write.file.max=96m"
        return Writer(self.hdfs, {"vanilla": [], "ours": [*self.ours(), little], "far": [*far, little],
                                  "off": [*self.ours(), "fs.paritas.enabled=false"],
                                  "short": [*self.ours(), little, "fs.paritas.min.file=1"],
                                  "patient": [*far, little, f"fs.paritas.timeout.ms={10 * PATIENCE_S}000"]})

    def is_committed(self, path):
        """Polls until a file has parity, and returns its keys in the cache."""
        until(lambda: self.entry(path).get("state") == "cached", f"parity of {path} is committed")
        return self.keys(path)

    def id(self, path):
        return int(self.reader.ok("id", path))

    def status(self):
        """The steward's, of the mount."""
        mount = json.loads(until(self.steward.status, "the steward answers"))["mounts"][NAMESPACE]
        return mount.get("status") or {"entries": [], "commits": 0, "rooms": 0}

    def entry(self, path):
        file = self.id(path)
        return next((entry for entry in self.status()["entries"] if entry["id"] == file and entry["state"] != "doomed"), {})

    def keys(self, path):
        return set(self.cluster.client(decode_responses=False).scan_iter(f"fp:{NAMESPACE}:{self.id(path)}:*", count=1000))

    def parity(self, path):
        """The parity of a file that has it: bytes by stripe, row and subblock."""
        client = self.cluster.client(decode_responses=False)
        return {tuple(key.split(b":")[-3:]): client.get(key)[HEADER_BYTES:] for key in self.is_committed(path)
                if not key.endswith(b":version")}

    def data_nodes(self, path):
        """Indexes of the DataNodes that have a data unit of a striped file."""
        nodes = [self.hdfs.node(i) for i in range(DATANODES)]
        return {nodes.index(name) for group in self.reader.ok("units", path).split() for name in group.split(",")[:UNITS]
                if name != "none"}

    def stop(self):
        for part in (*self.links.values(), self.writer, self.reader, self.hdfs):
            if part is not None:
                part.stop()
        if self.steward is not None:
            self.steward.kill()
        if self.cluster is not None:
            self.cluster.stop()


@pytest.fixture(scope="module", name="world")
def start_world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("writes"))
    try:
        yield world.start()
    finally:
        world.stop()


@pytest.fixture(autouse=True)
def heal(world):
    yield
    heal_datanodes(world)
    for link in world.links.values():
        link.open()
    if world.steward.process.poll() is not None:
        world.steward.start()
    if world.writer.process.poll() is not None:
        world.writer.stop()
        world.writer = world.start_writer()


def serves_a_read(world, path, length=LENGTH, used=None, way="read"):
    """The first read of a file with its last block's DataNode, and each other one in turn, stopped: nothing is waited for."""
    nodes = [world.hdfs.node(i) for i in range(DATANODES)]
    used = used or {nodes.index(name.split(",")[0]) for name in world.reader.ok("locations", path).split()}
    before = world.reader.counters("ours")
    for i in used:
        world.hdfs.signal(i, signal.SIGSTOP)
        seconds = world.reader.seconds(way, "ours", path, SEED)
        world.hdfs.signal(i, signal.SIGCONT)
        assert seconds < STOPPED_S, f"DataNode {i} is waited for"
    after = grown(before, world.reader.counters("ours"))
    assert after["delivered_bytes"] == len(used) * length and after["lost_reads"] == 0, after
    assert after["decoded_bytes"] > 0 and after["commits"] == 0, after


def write_apart(world, path, length, how="create"):
    """The blocks of each stripe on different DataNodes: one parity stands for one of a stripe. HDFS places them by chance: about
    one of seven files of two stripes is of use, and four of five files of two blocks."""
    for attempt in range(100):
        world.writer.ok("write", "ours", f"{path}{attempt}", length, BLOCK, SEED, how)
        nodes = world.reader.ok("locations", f"{path}{attempt}").split()
        if all(len(set(nodes[i:i + 4])) == len(nodes[i:i + 4]) for i in (0, 4)):
            return f"{path}{attempt}"
        world.reader.ok("delete", f"{path}{attempt}")
    pytest.fail(f"none of 100 files has its stripes on different DataNodes: {nodes}")


def test_the_parity_of_a_written_file_serves_its_first_read(world):
    path = write_apart(world, "/written", LENGTH)
    assert len(world.parity(path)) == SUBBLOCKS
    serves_a_read(world, path)


@pytest.mark.parametrize("how, way", [("builder", "read"), ("context", "context")])
def test_the_parity_of_a_file_written_in_other_ways_serves_its_first_read(world, how, way):
    length = BLOCK + 2 * MIB + 345
    path = write_apart(world, f"/{how}", length, how)
    assert len(world.parity(path)) == BLOCK // MIB
    serves_a_read(world, path, length, way=way)


@pytest.mark.parametrize("how, way", [("create", "read"), ("builder:" + POLICY, "read"), ("context", "context")])
def test_the_parity_of_a_written_striped_file_serves_its_first_read(world, how, way):
    # The builder gives the policy itself, where the directory has none.
    path = f"/by-{how.split(':')[0]}" if ":" in how else f"/striped/by-{how}"
    length = GROUP + BLOCK + 12_345
    world.writer.ok("write", "ours", path, length, BLOCK, SEED, how)
    rows = -(-GROUP // ROW) + -(-(BLOCK + 12_345) // ROW)
    assert len(world.parity(path)) == rows
    serves_a_read(world, path, length, world.data_nodes(path), way)


def is_what_a_first_reader_makes(world, path, length):
    """Parity that a writer has made, byte by byte that which a reader makes of the same bytes."""
    world.writer.ok("write", "vanilla", path + ".read", length, BLOCK, SEED)
    before = world.reader.counters("short")["commits"]

    def is_read():
        world.reader.ok("read", "short", path + ".read", SEED)
        return world.reader.counters("short")["commits"] > before

    until(is_read, "a reader commits its parity")
    made = world.parity(path)
    assert made == world.parity(path + ".read")
    world.reader.ok("read", "vanilla", path, SEED)
    world.reader.ok("read", "short", path, SEED)
    return made


@pytest.mark.parametrize(
    "length, subblocks", [(1, 1), (MIB - 1, 1), (ROW, 1), (ROW + 1, 2), (GROUP, 8), (2 * GROUP + ROW + MIB + 5, 18)])
def test_parity_of_striped_files_of_all_lengths_is_what_a_first_reader_makes(world, length, subblocks):
    path = f"/striped/of-{length}"
    world.writer.ok("write", "short", path, length, BLOCK, SEED)
    made = is_what_a_first_reader_makes(world, path, length)
    assert len(made) == subblocks and max(map(len, made.values())) == min(length, MIB)


@pytest.mark.parametrize("path", ["/flushed", "/striped/flushed"])
def test_a_file_that_is_flushed_while_it_is_written(world, path):
    length = GROUP + 2 * MIB + 77
    world.writer.ok("begin", "ours", path, BLOCK + 99, BLOCK, SEED)
    world.writer.ok("flush")
    world.writer.ok("more", length - BLOCK - 99)
    world.writer.ok("end")
    is_what_a_first_reader_makes(world, path, length)


def test_a_datanode_dies_while_a_striped_file_is_written(world):
    """HDFS goes on with the other units, and gives the group another generation."""
    world.writer.ok("begin", "ours", "/striped/bereft", 2 * ROW + 5, BLOCK, SEED)
    # The policy has a unit on each.
    world.hdfs.kill(0)
    world.writer.ok("more", GROUP - 2 * ROW + MIB)
    world.writer.ok("end")
    heal_datanodes(world)
    is_what_a_first_reader_makes(world, "/striped/bereft", GROUP + MIB + 5)


@pytest.mark.parametrize("how", ["create", "builder", "context"])
def test_nothing_is_asked_for_files_that_are_written_with_it_switched_off(world, how):
    before = world.status()["rooms"]
    world.writer.ok("write", "off", f"/off-{how}", LENGTH, BLOCK, SEED, how)
    assert world.status()["rooms"] == before and world.entry(f"/off-{how}") == {}
    world.reader.ok("read", "vanilla", f"/off-{how}", SEED)


def test_a_file_whose_block_is_ended_early_has_no_parity(world):
    before = world.writer.counters("ours")
    world.writer.ok("begin", "ours", "/uneven", BLOCK + 99, BLOCK, SEED)
    world.writer.ok("end-block")
    world.writer.ok("more", BLOCK)
    world.writer.ok("end")
    assert len(world.reader.ok("locations", "/uneven").split()) == 3
    until(lambda: grown(before, world.writer.counters("ours"))["writes_dropped"] == 1, "its parity is dropped")
    assert world.entry("/uneven") == {}
    world.reader.ok("read", "ours", "/uneven", SEED)


@pytest.mark.parametrize("part, trouble", [("steward", "stop"), ("cache", "hang")])
def test_steward_or_cache_that_hang_or_go_while_a_striped_file_is_written(world, part, trouble):
    path = f"/striped/{part}-{trouble}"
    before = world.writer.counters("far")
    world.writer.ok("begin", "far", path, GROUP, BLOCK, SEED)
    getattr(world.links[part], trouble)()
    seconds = world.writer.seconds("more", GROUP) + world.writer.seconds("end")
    assert seconds < PATIENCE_S + STOPPED_S, f"the writer waits for the {part}"
    until(lambda: grown(before, world.writer.counters("far"))["writes_dropped"] == 1, "its parity is dropped")
    world.links[part].open()
    assert world.entry(path).get("state") != "cached"
    world.reader.ok("read", "ours", path, SEED)


def test_a_writer_of_a_striped_file_killed_half_way_leaves_no_parity(world):
    world.writer.ok("begin", "ours", "/striped/half", 2 * GROUP, BLOCK, SEED)
    until(lambda: len(world.keys("/striped/half")) >= 8, "the first group's parity is in the cache")
    assert world.entry("/striped/half")["state"] == "filling"
    world.writer.process.kill()
    world.writer.process.wait()
    until(lambda: not world.keys("/striped/half"), "the steward deletes what was written", PIN_S)
    assert world.entry("/striped/half") == {}


def test_files_of_other_cells_than_a_subblock_are_hadoops_own(world):
    world.reader.ok("xor-policy", "/xor", UNITS)
    before = world.status()["rooms"]
    world.writer.ok("write", "ours", "/xor/same", GROUP, BLOCK, SEED)
    assert len(world.parity("/xor/same")) == BLOCK // MIB
    # The same cells are not subblocks of this client.
    other = Writer(world.hdfs, {"other": [*world.ours(), "fs.paritas.subblock=512k"]})
    try:
        other.ok("write", "other", "/xor/other", GROUP, BLOCK, SEED)
        assert world.entry("/xor/other") == {} and world.status()["rooms"] == before + 1
    finally:
        other.stop()


def test_a_jvm_of_a_filecontext_that_ends_has_committed(world):
    """Nobody closes a FileContext. Each subblock of the second stripe takes more than half a second."""
    world.writer.ok("begin", "patient", "/left", LENGTH, BLOCK, SEED, "context")
    world.links["cache"].relay.slow_by(0.3)
    world.writer.ok("end")
    assert world.entry("/left")["state"] == "filling"
    world.writer.send("leave")
    world.writer.process.wait(TIMEOUT_S)
    assert world.entry("/left")["state"] == "cached"


def test_a_renamed_file_keeps_its_parity_and_a_short_one_has_none(world):
    world.writer.ok("begin", "ours", "/_temporary", LENGTH, BLOCK, SEED)
    world.writer.ok("rename", "ours", "/_temporary", "/renamed")
    world.writer.ok("end")
    assert len(world.parity("/renamed")) == SUBBLOCKS
    before = world.status()["rooms"]
    world.writer.ok("write", "ours", "/short", MIB, BLOCK, SEED)
    # One of one block, which a reader must take for the same.
    world.writer.ok("write", "ours", "/one", BLOCK + 1, 2 * BLOCK, SEED)
    assert len(world.parity("/one")) == BLOCK // MIB + 1
    assert world.status()["rooms"] == before + 1
    before = world.reader.counters("ours")
    world.reader.ok("read", "ours", "/one", SEED)
    world.reader.ok("read", "ours", "/renamed", SEED)
    after = grown(before, world.reader.counters("ours"))
    assert (after["commits"], after["opens_cached"]) == (0, 2), "readers find it, and make none"


def test_a_file_system_that_is_closed_has_committed(world):
    before = world.status()["commits"]
    world.writer.ok("write", "ours", "/closed", LENGTH, BLOCK, SEED)
    world.writer.ok("close", "ours")
    assert world.status()["commits"] == before + 1


@pytest.mark.parametrize("how", ["append", "flag"])
def test_a_file_that_is_appended_to_has_no_parity_of_the_old_bytes(world, how):
    path = f"/grown-by-{how}"
    world.writer.ok("write", "ours", path, LENGTH, BLOCK, SEED)
    world.is_committed(path)
    if how == "append":
        world.reader.ok("append", path, 2 * BLOCK, SEED)
    else:
        world.writer.ok("write", "ours", path, 2 * BLOCK, BLOCK, SEED, "append")
    before = world.reader.counters("ours")
    # A read asks for the first subblock of each stripe's parity, if it knows of any.
    assert int(world.reader.ok("read", "ours", path, SEED).split()[1]) == LENGTH + 2 * BLOCK
    read = grown(before, world.reader.counters("ours"))
    assert (read["parity_bytes"], read["decoded_bytes"]) == (0, 0), read


def test_a_file_whose_lease_another_client_ends_gets_no_parity_of_its_writer(world):
    before = world.writer.counters("ours")
    world.writer.ok("begin", "ours", "/taken", LENGTH, BLOCK, SEED)
    world.writer.ok("flush")
    until(lambda: world.reader.ok("recover", "/taken") == "true", "the file is closed in its writer's place")
    world.reader.ok("append", "/taken", MIB, SEED)
    assert world.writer.ask("end").startswith("error"), "as with Hadoop's own stream"
    until(lambda: grown(before, world.writer.counters("ours"))["writes_dropped"] == 1, "its parity is dropped")
    assert world.entry("/taken").get("state") != "cached"
    assert int(world.reader.ok("read", "ours", "/taken", SEED).split()[1]) == LENGTH + MIB


def test_a_file_that_is_appended_to_before_its_parity_is_committed_gets_none(world):
    before = world.writer.counters("far")
    world.writer.ok("begin", "far", "/raced", LENGTH, BLOCK, SEED)
    until(lambda: len(world.keys("/raced")) >= BLOCK // MIB, "the first stripe's parity is in the cache")
    # Each subblock of the second stripe takes more than a second, and only after them the file is looked at.
    world.links["cache"].relay.slow_by(0.5)
    world.writer.ok("end")
    world.reader.ok("append", "/raced", MIB, SEED)
    until(lambda: grown(before, world.writer.counters("far"))["writes_dropped"] == 1, "its parity is dropped")
    assert world.entry("/raced").get("state") != "cached"
    world.reader.ok("read", "ours", "/raced", SEED)


def test_a_file_replaced_while_it_is_written_gets_no_parity_of_the_writer(world):
    world.writer.ok("begin", "ours", "/fought", LENGTH, BLOCK, SEED)
    until(lambda: world.keys("/fought"), "some of its parity is in the cache")
    old = world.id("/fought")
    world.reader.ok("delete", "/fought")
    world.reader.ok("write", "/fought", LENGTH, BLOCK, SEED + 1)
    before = world.writer.counters("ours")
    assert world.writer.ask("end").startswith("error"), "as with Hadoop's own stream"
    until(lambda: grown(before, world.writer.counters("ours"))["writes_dropped"] == 1, "its parity is dropped")
    until(lambda: not any(entry["id"] == old for entry in world.status()["entries"]), "the steward forgets it")
    assert world.entry("/fought") == {}
    world.reader.ok("read", "ours", "/fought", SEED + 1)


def test_a_writer_killed_half_way_leaves_no_parity(world):
    world.writer.ok("begin", "ours", "/half", LENGTH, BLOCK, SEED)
    until(lambda: len(world.keys("/half")) >= BLOCK // MIB, "the first stripe's parity is in the cache")
    assert world.entry("/half")["state"] == "filling"
    commits = world.status()["commits"]
    world.writer.process.kill()
    world.writer.process.wait()
    # The pin of a dead client ends after 60 s.
    until(lambda: not world.keys("/half"), "the steward deletes what was written", PIN_S)
    assert world.entry("/half") == {} and world.status()["commits"] == commits


@pytest.mark.parametrize("part", ["steward", "cache"])
@pytest.mark.parametrize("trouble", ["hang", "stop"])
def test_steward_or_cache_that_hang_or_go_during_a_write(world, part, trouble):
    path = f"/{part}-{trouble}"
    before = world.writer.counters("far")
    world.writer.ok("begin", "far", path, 2 * BLOCK, BLOCK, SEED)
    getattr(world.links[part], trouble)()
    seconds = world.writer.seconds("more", LENGTH - 2 * BLOCK) + world.writer.seconds("end")
    assert seconds < PATIENCE_S + STOPPED_S, f"the writer waits for the {part}"
    until(lambda: grown(before, world.writer.counters("far"))["writes_dropped"] == 1, "its parity is dropped")
    world.links[part].open()
    assert world.entry(path).get("state") != "cached"
    world.reader.ok("read", "ours", path, SEED)


def test_the_steward_is_killed_during_a_write(world):
    world.writer.ok("begin", "ours", "/orphan", 2 * BLOCK, BLOCK, SEED)
    before = world.writer.counters("ours")
    world.steward.kill()
    seconds = world.writer.seconds("more", LENGTH - 2 * BLOCK) + world.writer.seconds("end")
    assert seconds < PATIENCE_S + STOPPED_S
    world.steward.start()
    until(lambda: grown(before, world.writer.counters("ours"))["writes_dropped"] == 1, "its parity is dropped")
    assert world.entry("/orphan").get("state") != "cached", "the new steward does not take it for whole"
    world.reader.ok("read", "ours", "/orphan", SEED)


def remove(world, path, settings):
    """`hdfs dfs -rm`: the JVM ends when the file is deleted."""
    options = [f"-D{setting}" for setting in (f"fs.defaultFS={world.hdfs.uri}", *settings)]
    subprocess.run([*JAVA, "-Xmx256m", "-cp", world.hdfs.class_path, "org.apache.hadoop.fs.FsShell", *options, "-rm", "-skipTrash", path],
                   check=True, capture_output=True, timeout=TIMEOUT_S)


def test_parity_of_a_file_goes_when_it_is_deleted_or_replaced(world):
    client = world.cluster.client(decode_responses=False)
    world.writer.ok("write", "ours", "/replaced-later", LENGTH, BLOCK, SEED)
    first = world.is_committed("/replaced-later")
    world.writer.ok("write", "ours", "/replaced-later", LENGTH, BLOCK, SEED)
    until(lambda: not any(client.exists(key) for key in first), "the parity of the replaced file goes")
    second = world.is_committed("/replaced-later")
    assert len(second) == SUBBLOCKS + 1
    remove(world, "/replaced-later", world.ours())
    until(lambda: not any(client.exists(key) for key in second), "the parity of the deleted file goes")


def test_a_worker_finds_files_that_others_have_deleted(world):
    client = world.cluster.client(decode_responses=False)
    world.writer.ok("write", "ours", "/kept", LENGTH, BLOCK, SEED)
    world.writer.ok("write", "ours", "/gone", LENGTH, BLOCK, SEED)
    kept, gone = world.is_committed("/kept"), world.is_committed("/gone")
    remove(world, "/gone", [])
    assert all(client.exists(key) for key in gone), "Hadoop's own client tells nobody"
    worker = Worker(world.hdfs, world.ours())
    try:
        until(lambda: not any(client.exists(key) for key in gone), "the worker finds out", CHECKED_S)
    finally:
        worker.stop()
    assert all(client.exists(key) for key in kept)


def test_the_cache_is_killed_during_a_write(world, tmp_path):
    port = free_ports(1)[0]
    cache = subprocess.Popen(["redis-server", "--port", str(port), "--save", "", "--dir", str(tmp_path)], stdout=subprocess.DEVNULL)
    steward = writer = None
    try:
        steward = Steward(tmp_path, f"127.0.0.1:{port}", free_ports(1)[0]).start()
        mortal = [*world.ours(), f"fs.paritas.steward={steward.address}", f"fs.paritas.cache=127.0.0.1:{port}"]
        writer = Writer(world.hdfs, {"mortal": mortal})
        writer.ok("begin", "mortal", "/mortal", 4 * BLOCK, BLOCK, SEED)
        client = redis.Redis(port=port)
        until(lambda: len(list(client.scan_iter("fp:*"))) == BLOCK // MIB, "the first stripe's parity is in the cache")
        cache.kill()
        cache.wait()
        seconds = writer.seconds("more", LENGTH - 4 * BLOCK) + writer.seconds("end")
        assert seconds < PATIENCE_S + STOPPED_S
        until(lambda: writer.counters("mortal")["writes_dropped"] == 1, "its parity is dropped")
        world.reader.ok("read", "vanilla", "/mortal", SEED)
    finally:
        if writer is not None:
            writer.stop()
        if steward is not None:
            steward.kill()
        cache.kill()
        cache.wait()


def test_parity_of_a_new_straggler_is_made_ahead_of_readers(world, tmp_path):
    """A cache of few blocks: the first files that were read have lost their place to the last ones. When a DataNode becomes slow,
    its files get parity without being read, the last that were read first."""
    files, blocks, percent = 6, 6, 50
    fine_s, straggler_s = 10, 2000
    steward = reader = worker = None
    try:
        steward = Steward(tmp_path, f"127.0.0.1:{world.cluster.port}", free_ports(1)[0])
        steward.config.write_text(
            f'listen = "{steward.address}"\n[mount.ahead]\ncache = "127.0.0.1:{world.cluster.port}"\nblocks = {blocks}\n'
            f'block = "8mb"\neviction = "lru"\nprefetch = {percent}\nperiod_ms = 500\n', encoding="utf-8")
        steward.start()
        ours = [*world.ours(), "fs.paritas.namespace=ahead", f"fs.paritas.steward={steward.address}"]
        reader = Reader(world.hdfs, {"ours": ours, "vanilla": []}, ["fs.paritas.write.file.max=0"])
        nodes = [world.hdfs.node(i) for i in range(DATANODES)]

        def report(seconds, straggler_bytes):
            """Samples that outweigh what the client itself has measured."""
            samples = []
            for i, node in enumerate(nodes):
                samples += [node, straggler_bytes if i == 2 else 100 * MIB * seconds, seconds * 10**9, 0] * 8
            with redis.Redis(port=steward.port, protocol=2) as client:
                client.execute_command("FILES.REPORT", "ahead", *samples)

        report(fine_s, 100 * MIB * fine_s)
        # Two parity blocks each: so three of six files are cached.
        for i in range(files):
            reader.ok("write", f"/ahead{i}", LENGTH, BLOCK, SEED, *nodes)
        for i in range(files):
            before = reader.counters("ours")["commits"]

            def is_committed(i=i, before=before):
                # Nothing new is granted before evicted parity is deleted: then a later read makes it.
                reader.ok("read", "ours", f"/ahead{i}", SEED)
                return reader.counters("ours")["commits"] > before

            until(is_committed, "its parity is committed")
        worker = Worker(world.hdfs, ours)

        def status():
            return json.loads(until(steward.status, "the steward answers"))["mounts"]["ahead"]["status"]

        def cached():
            return {entry["id"] for entry in status()["entries"] if entry["state"] == "cached"}

        ids = [int(reader.ok("id", f"/ahead{i}")) for i in range(files)]
        assert cached() == set(ids[3:])
        opens = status()["opens"]
        report(straggler_s, MIB * straggler_s)
        # Half of six blocks: one file of two.
        until(lambda: ids[2] in cached(), "parity of the last read one that had none")
        # It pauses after each stripe, and then says so.
        until(lambda: worker.lines(f"inode {ids[2]}: made parity of {LENGTH} bytes"), "the worker names the file")
        after = status()
        assert (after["prefetches"], after["prefetches_waiting"], after["opens"]) == (1, 0, opens)
        assert len(cached()) == 3 and ids[0] not in cached() and ids[1] not in cached()

        world.hdfs.signal(2, signal.SIGSTOP)
        before = reader.counters("ours")
        seconds = reader.seconds("read", "ours", "/ahead2", SEED)
        assert seconds < STOPPED_S, "the slow DataNode is waited for"
        assert grown(before, reader.counters("ours"))["decoded_bytes"] >= BLOCK
    finally:
        for part in (reader, worker):
            if part is not None:
                part.stop()
        if steward is not None:
            steward.kill()
