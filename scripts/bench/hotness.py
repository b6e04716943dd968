"""Reads of large values under skewed access, with redundancy by hotness off and on: bytes between nodes for each byte
read, latency at the owners' ports while all nodes answer and while one node stands still, and memory of parts. Needs
redis-py, `ss` and PARITAS_BIN:

    python3 scripts/bench/hotness.py
"""

import argparse
import bisect
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time

import redis
import systems
from large import sent_bytes

SCHEME, NODES, MEMORY = "4+2", 6, "512mb"
VALUE, KEYS, EXPONENT = 1 << 20, 60, 1.2
SETTINGS = {"off": "", "on": "hot eor:3,4 cold ec:4,2 reads 8 seconds 20"}
# A node stands still for this time, often: less than makes its peers suspect it.
STOPPED_S = 0.6


class Reader:
    """Reads keys at their owners."""

    def __init__(self, system, seed):
        self.random = random.Random(seed)
        self.at = [redis.Redis(port=system.port + node, socket_timeout=20) for node in range(NODES)]
        self.any = redis.Redis(port=system.any_port, socket_timeout=20)
        self.keys = [f"key:{n}" for n in range(KEYS)]
        weights = [1 / (rank + 1) ** EXPONENT for rank in range(KEYS)]
        self.limits = list(itertools.accumulate(weights))
        self.owner = {key: self.owner_of(key) for key in self.keys}

    def owner_of(self, key):
        for node, client in enumerate(self.at):
            try:
                client.exists(key)
                return node
            except redis.exceptions.MovedError:
                pass
        raise SystemExit(f"nobody owns {key}")

    def draw(self):
        return bisect.bisect_left(self.limits, self.random.random() * self.limits[-1])

    def read(self, rank):
        key = self.keys[rank]
        begin = time.monotonic()
        value = self.at[self.owner[key]].get(key)
        assert len(value) == VALUE
        return (time.monotonic() - begin) * 1e3


def parts_bytes(system):
    command = [systems.PARITAS, "status", "--port", str(system.any_port), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["memory"]["by_kind"].get("parts", 0)


def pids(system):
    command = [systems.PARITAS, "status", "--port", str(system.any_port), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {node["id"]: node["pid"] for node in json.loads(done.stdout)["nodes"]}


def while_one_stands_still(system, reader, times):
    """Latencies of reads whose owner answers, while another node does not: those of hot ranks, and of all."""
    taken, processes = [], pids(system)
    for n in range(times):
        node = n % NODES
        os.kill(processes[node], signal.SIGSTOP)
        end = time.monotonic() + STOPPED_S
        try:
            while time.monotonic() < end:
                rank = reader.draw()
                if reader.owner[reader.keys[rank]] != node:
                    taken.append((rank, reader.read(rank)))
        finally:
            os.kill(processes[node], signal.SIGCONT)
        # Until leases are renewed and the node is heard again.
        time.sleep(1.5)
    return taken


def show(taken):
    if len(taken) < 2:
        return "–"
    taken = sorted(taken)
    return f"{statistics.median(taken):.1f} / {taken[int(len(taken) * 0.95)]:.1f} ({len(taken)})"


def measure(name, setting, options):
    system = systems.Paritas(SCHEME, NODES, MEMORY, options=["--redundancy-hotness", setting] if setting else [])
    with system:
        reader = Reader(system, options.seed)
        for n, key in enumerate(reader.keys):
            reader.any.set(key, random.Random(n).randbytes(VALUE))
        # Hot values need changes at 10 a second at most.
        for _ in range(options.reads):
            reader.read(reader.draw())
        time.sleep(3)
        before = sent_bytes(system)
        # Commands read a body that another one has just read: a value is asked for again only after its owner has
        # dropped it, so reads of one value are a little apart.
        taken = [(rank, reader.read(rank)) for rank in (reader.draw() for _ in range(options.reads))]
        sent = (sent_bytes(system) - before) / (VALUE * len(taken))
        still = while_one_stands_still(system, reader, options.stops)
        hot = [rank for rank, key in enumerate(reader.keys) if reader.any.execute_command("PARITAS.REDUNDANCY", key) == b"eor:3,4"]
        first = set(range(5))
        parts = parts_bytes(system) / (VALUE * KEYS)
        cells = [f"{sent:.2f}", f"{parts:.2f}", str(len(hot)), show([ms for _, ms in taken])]
        cells += [show([ms for rank, ms in still if rank in first]), show([ms for _, ms in still])]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=1000)
    parser.add_argument("--stops", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| hotness | bytes between nodes, of those read | parts, of the values | hot values | all nodes answer | hottest 5, one stands still | all, one stands still |")
    print("|---|---|---|---|---|---|---|")
    for _ in range(options.rounds):
        for name, setting in SETTINGS.items():
            measure(name, setting, options)
        options.seed += 1


if __name__ == "__main__":
    sys.exit(main())
