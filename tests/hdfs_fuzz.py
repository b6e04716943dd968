"""Makes what the cache holds wrong in every way, and changes files, while clients read them beside a DataNode that stands still: each
byte that a reader gets must be right, or the read must fail.

    PARITAS_BIN=… target/venv/bin/python tests/hdfs_fuzz.py --minutes 60 --seed 1

Values are exchanged, copied to other places, put back as they were earlier, deleted, and changed with a right CRC. Files are
replaced, appended to, truncated and deleted. Readers share a secret, read in order, by position and several ranges, with the default
settings and with all parity at once. What the project does not promise is left out: a file that is truncated and written again under a
reader, and a cache that strangers change where clients have no secret."""

import argparse
import pathlib
import random
import select
import signal
import sys
import tempfile
import time

from hdfs import Reader
from test_hdfs_reads import BLOCK, CRC32C_OF_1, DATANODES, MIB, World, believe, heal_datanodes

FILES, STRIPED = 4, 2
LENGTHS = [BLOCK, 2 * BLOCK + 5, 4 * BLOCK, 5 * BLOCK + 12_345]
OLD_MAX = 200


class Fuzz:
    def __init__(self, world, seed):
        self.world, self.draw = world, random.Random(seed)
        self.cache = world.cluster.client(decode_responses=False)
        # What each file may hold: seeds of its bytes, and its length.
        self.files = {}
        self.old = []
        self.counts = {}
        self.seeds = 100
        usual = [*world.modes()["default"], *world.modes()["secret"][-1:]]
        self.reader = Reader(world.hdfs, {"fuzz": usual, "at-once": [*usual, "fs.paritas.read.parity=at-once"],
                                          "whole": [*usual, "fs.paritas.read.policy=whole-file"]})
        self.writer = Reader(world.hdfs, {"vanilla": []})
        self.reader.ok("policy", "/fuzz-striped", "RS-3-2-1024k")

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def path(self):
        return self.draw.choice([f"/fuzz/{i}" for i in range(FILES)] + [f"/fuzz-striped/{i}" for i in range(STRIPED)])

    def write(self, path):
        self.seeds += 1
        length = self.draw.choice(LENGTHS)
        self.writer.ok("write", path, length, BLOCK, self.seeds)
        self.files[path] = self.seeds, length

    def keys(self):
        return sorted(self.cache.scan_iter("fp:*", count=1000))

    def spoil(self):
        """One wrong thing in the cache."""
        keys = self.keys()
        if len(keys) < 2:
            return
        one, other = self.draw.sample(keys, 2)
        if self.draw.random() < 0.5:
            # Neighbours: the same file more often than not.
            at = self.draw.randrange(len(keys) - 1)
            one, other = keys[at], keys[at + 1]
        first, second = self.cache.get(one), self.cache.get(other)
        if first is None or second is None:
            return
        self.old = [*self.old[-OLD_MAX:], (one, first)]
        what = self.draw.choice(["exchange", "copy", "old", "flip", "flip with a right CRC", "delete"])
        self.count(what)
        if what == "exchange":
            self.cache.set(one, second)
            self.cache.set(other, first)
        elif what == "copy":
            self.cache.set(other, first)
        elif what == "old":
            # Under its own key, or where the same place of a file is now.
            key, value = self.draw.choice(self.old)
            place = key.split(b":")[-3:]
            alike = [each for each in keys if each.split(b":")[-3:] == place]
            self.cache.set(self.draw.choice(alike) if alike else key, value)
        elif what == "delete":
            self.cache.delete(one)
        else:
            value = bytearray(first)
            value[-1] ^= 1
            if what != "flip":
                value[4:8] = (int.from_bytes(value[4:8], "little") ^ CRC32C_OF_1).to_bytes(4, "little")
            self.cache.set(one, bytes(value))

    def change(self, path):
        """Changes the file while it is read. What a reader may get then: seeds of bytes."""
        seed, length = self.files[path]
        what = self.draw.choice(["replace", "append", "truncate", "delete"])
        if "striped" in path and what == "truncate":
            what = "replace"
        self.count(what)
        if what == "append":
            more = self.draw.choice([5, MIB, BLOCK])
            # It goes on with the bytes of its seed.
            done = self.writer.ask("append", path, more, seed).startswith("ok")
            self.files[path] = (seed, length + more) if done else self.files[path]
        elif what == "truncate":
            self.writer.ok("truncate", path, self.draw.randrange(1, length))
        else:
            self.writer.ok("delete", path)
        return what

    def read(self):
        """One read beside a DataNode that may stand still, with a change of the file or not."""
        path = self.path()
        seed, length = self.files[path]
        mode = self.draw.choice(["fuzz", "fuzz", "at-once", "whole"])
        start = self.draw.randrange(length)
        how = self.draw.choice(["bytes", "buffer", "vectored"])
        count = min(length - start, self.draw.choice([100_000, MIB, 3 * MIB + 7]))
        end = min(length, start + 4 * MIB)
        command = self.draw.choice([("read", mode, path, seed), ("buffer", mode, path, seed),
                                    ("part", mode, path, seed, start, count),
                                    ("preads", mode, path, seed, max(1, count // 3), max(1, count // 2), how, start, end)])
        slow = self.draw.randrange(DATANODES) if self.draw.random() < 0.8 else None
        if slow is not None:
            if self.draw.random() < 0.5:
                believe(self.world, slow)
            self.world.hdfs.signal(slow, signal.SIGSTOP)
        changed = None
        self.reader.send(*command)
        try:
            if self.draw.random() < 0.25 and slow is None:
                changed = self.change(path)
            elif slow is not None:
                # The node stands still for so long at most.
                self.wait(3)
        finally:
            heal_datanodes(self.world)
        answer = self.reader.answer()
        self.count(answer.split()[0])
        fine = answer.startswith("ok") or changed and answer.startswith(("error", "too few"))
        assert fine, f"{command}, DataNode {slow}, {changed}: {answer}"
        if changed in ("replace", "truncate", "delete"):
            self.writer.ask("delete", path)
            self.write(path)

    def wait(self, seconds):
        return select.select([self.reader.process.stdout], [], [], seconds)[0]

    def run(self, minutes):
        for path in [f"/fuzz/{i}" for i in range(FILES)] + [f"/fuzz-striped/{i}" for i in range(STRIPED)]:
            self.write(path)
        end = time.monotonic() + 60 * minutes
        told = time.monotonic()
        while time.monotonic() < end:
            for _ in range(self.draw.randrange(4)):
                self.spoil()
            if self.draw.random() < 0.2:
                # Right parity again, for what comes next.
                path = self.path()
                self.reader.ask("read", "whole", path, self.files[path][0])
            self.read()
            if time.monotonic() - told > 60:
                told = time.monotonic()
                print(self.counts, flush=True)
        print(self.counts, {mode: self.reader.counters(mode) for mode in ("fuzz", "at-once", "whole")}, flush=True)

    def stop(self):
        heal_datanodes(self.world)
        self.reader.stop()
        self.writer.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    with tempfile.TemporaryDirectory(prefix="paritas-hdfs-fuzz-") as directory:
        world = World(pathlib.Path(directory))
        fuzz = None
        try:
            world.start()
            fuzz = Fuzz(world, arguments.seed)
            fuzz.run(arguments.minutes)
        finally:
            if fuzz:
                fuzz.stop()
            world.stop()
    print(f"seed {arguments.seed}: no wrong byte in {arguments.minutes:g} minutes")


if __name__ == "__main__":
    main()
