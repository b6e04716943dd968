"""A cluster filled to its limit under `noeviction` loses two nodes at once while clients write."""

import os
import signal
import threading
import time

import pytest
import redis

from conftest import TIMEOUT_S, Background, is_refused, once_served, until
from test_eviction import resident

# Memory of a node. The environment can set more, for figures.
MEMORY = int(os.environ.get("MEMORY_MIB", "48")) << 20
NODES, SPARES = 6, 2


def memory_kinds(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return {line.split()[0]: int(line.split()[1]) for line in status if line.startswith(("Rss", "VmData", "Threads"))}


class Watch(threading.Thread):
    """Polls every node for its memory and its evictions, and records the maximum."""

    def __init__(self, cluster, memory=MEMORY):
        super().__init__(daemon=True)
        self.cluster, self.memory, self.ending = cluster, memory, threading.Event()
        self.used, self.resident, self.at_peak, self.evicted, self.asked = {}, {}, {}, 0, 0
        self.idle = min(map(resident, cluster.pids().values()))

    def run(self):
        clients = [self.cluster.client(node, socket_timeout=1) for node in range(self.cluster.nodes)]
        while not self.ending.wait(0.02):
            for node, client in enumerate(clients):
                try:
                    info = client.info()
                    pid = info["process_id"]
                    if (rss := resident(pid)) > self.resident.get(pid, 0):
                        self.resident[pid], self.at_peak[pid] = rss, (info["used_memory"], memory_kinds(pid))
                    self.used[pid] = max(self.used.get(pid, 0), info["used_memory_peak"])
                    self.evicted += info["evicted_keys"]
                    self.asked += 1
                except (redis.RedisError, OSError, StopIteration, KeyError):
                    client.connection_pool.disconnect()

    def stop(self):
        self.ending.set()
        self.join(TIMEOUT_S)
        for pid, used in self.used.items():
            print(f"process {pid}: at most {used / self.memory:.4f} of its limit counted, RSS {self.resident[pid] / self.memory:.3f}")
            print(f"process {pid} when its RSS was greatest: counted, and the system's kinds: {self.at_peak[pid]}")
        assert self.asked > 20 * self.cluster.nodes
        assert max(self.used.values()) <= self.memory * 1.01
        # The memory of a process that holds no data yet: code, stacks and so on.
        assert max(self.resident.values()) - self.idle <= self.memory * 1.01
        assert self.evicted == 0


class Writer(Background):
    """Overwrites keys with other sizes, deletes keys, and sets new ones, in pipelines. Records the possible values of
    each key."""

    def __init__(self, cluster, node, name, rng):
        super().__init__()
        self.client, self.name_, self.rng = cluster.client(node, decode_responses=False), name, rng
        self.possible = {}
        self.done = self.refused = self.out_of_memory = self.uncertain = 0
        # Consecutive batches that found memory full.
        self.full_batches = 0
        self.keys = 0
        self.filling = True

    def work(self):
        while not self.ending.is_set():
            self.batch([self.draw() for _ in range(50)])

    def draw(self):
        if self.filling or self.rng.random() < 0.2:
            self.keys += 1
            return b"%s:%d" % (self.name_, self.keys), self.value()
        key = b"%s:%d" % (self.name_, self.rng.randrange(self.keys) + 1)
        return key, None if self.rng.random() < 0.1 else self.value()

    def value(self):
        return self.rng.randbytes(self.rng.randrange(1, 1500))

    def batch(self, changes):
        pipe = self.client.pipeline(transaction=False)
        for key, value in changes:
            _ = pipe.delete(key) if value is None else pipe.set(key, value)
        try:
            replies = pipe.execute(raise_on_error=False)
        except (redis.ConnectionError, redis.TimeoutError):
            self.client.connection_pool.disconnect()
            replies = [None] * len(changes)
        full = 0
        for (key, value), reply in zip(changes, replies):
            if reply is True or isinstance(reply, int):
                self.possible[key] = [value]
                self.done += 1
            elif reply is None or str(reply).startswith("UNCERTAIN"):
                self.possible.setdefault(key, [None]).append(value)
                self.uncertain += 1
            else:
                is_full = isinstance(reply, redis.exceptions.OutOfMemoryError)
                assert is_full or is_refused(reply), reply
                full += is_full
                self.refused += not is_full
        self.out_of_memory += full
        self.full_batches = self.full_batches + 1 if full > len(changes) * 0.9 else 0

    def check(self, client):
        """Returns the number of existing keys."""
        keys, found = list(self.possible), 0
        for start in range(0, len(keys), 500):
            part = keys[start : start + 500]
            for key, value in zip(part, client.mget(part)):
                assert value in self.possible[key], f"{key}: {value!r:.60}"
                found += value is not None
        return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("silent", [False, True], ids=["killed", "silent"])
def test_two_nodes_of_a_full_cluster_are_rebuilt_within_its_limits(start_cluster, rng, silent):
    """Killed nodes are restarted. Spares replace silent ones."""
    cluster = start_cluster(memory=str(MEMORY), spares=SPARES)
    watch = Watch(cluster)
    watch.start()
    dead = rng.sample(range(NODES), 2)
    others = [node for node in range(NODES) if node not in dead]
    writers = [Writer(cluster, node, b"w%d" % node, rng) for node in others[:2]]
    for writer in writers:
        writer.start()
    until(lambda: any(w.broken for w in writers) or all(w.full_batches >= 3 for w in writers), "memory full", 5 * TIMEOUT_S)
    for writer in writers:
        writer.filling = False
    filled = time.monotonic()
    until(lambda: time.monotonic() > filled + 3, "a while of writes to full memory")

    began = time.monotonic()
    pids = cluster.pids()
    ended = [pids[node] for node in dead]
    for pid in ended:
        os.kill(pid, signal.SIGSTOP if silent else signal.SIGKILL)
    try:
        if silent:
            until(lambda: holders(cluster).isdisjoint(dead) and cluster.is_whole(), "the others hold everything", 3 * TIMEOUT_S)
        else:
            cluster.until_replaced(ended, 3 * TIMEOUT_S)
    finally:
        if silent:
            for pid in ended:
                os.kill(pid, signal.SIGKILL)
    whole = time.monotonic() - began
    for writer in writers:
        writer.stop()
    watch.stop()
    client = cluster.client(others[0], decode_responses=False)
    found = sum(writer.check(client) for writer in writers)
    print(f"{dead} {'silent' if silent else 'killed'}: whole after {whole:.1f} s; {found} keys found;",
          [(w.done, w.out_of_memory, w.refused, w.uncertain) for w in writers], "done, OOM, refused, uncertain")
    # After a takeover it is refused until all keys are counted.
    assert found == once_served(client.dbsize)
    assert all(writer.out_of_memory for writer in writers)
    # A cluster with full memory must not be stuck.
    for writer in writers:
        keys = list(writer.possible)
        for start in range(0, len(keys), 1000):
            client.delete(*keys[start : start + 1000])
    until(lambda: has_memory_for(client, "after"), "free memory after deleting")


WHOLE = int(os.environ.get("WHOLE_MIB", "200")) << 20


@pytest.mark.timeout(600)
@pytest.mark.parametrize("longest", [20_000, 1_000_000], ids=["objects", "large"])
def test_the_whole_process_stays_within_its_memory_when_full_and_rebuilding(start_cluster, rng, longest):
    """RSS of a process, code and stacks included, against `memory` as it is set."""
    cluster = start_cluster(nodes=3, scheme="2+1", memory=str(WHOLE))
    watch = Watch(cluster, WHOLE)
    watch.start()
    clients = [cluster.client(node, decode_responses=False) for node in range(3)]
    block = rng.randbytes(longest)

    def fill(prefix, client, longest):
        """Sets values of many lengths until three batches in a row find memory full."""
        full = n = 0
        while full < 3:
            pipe = client.pipeline(transaction=False)
            for n in range(n + 1, n + 51):
                pipe.set(b"%s:%d" % (prefix, n), block[: 1 + n * 7919 % longest])
            replies = pipe.execute(raise_on_error=False)
            refused = sum(isinstance(reply, redis.exceptions.OutOfMemoryError) for reply in replies)
            assert refused == 50 - replies.count(True), replies
            full = full + 1 if refused > 40 else 0
        return n

    fill(b"long", clients[0], longest)
    # What the longer values have left.
    keys = fill(b"short", clients[1], 300)
    for dead in rng.sample(range(3), 2):
        cluster.until_replaced(cluster.kill(dead), 3 * TIMEOUT_S)
        # A full node must not grow by reads either.
        client = cluster.client(dead, decode_responses=False)
        for start in range(1, keys, 500):
            client.mget([b"short:%d" % n for n in range(start, start + 500)])
    watch.stop()
    assert max(watch.resident.values()) <= WHOLE * 1.02


def has_memory_for(client, key, value="x" * 1000):
    """Whether a value can be stored. Chunks of deleted values are freed a moment after the reply of DEL."""
    try:
        return client.set(key, value)
    except redis.exceptions.OutOfMemoryError:
        return False


def holders(cluster):
    """The nodes that hold positions."""
    status = cluster.any_status()
    return {position["node"] for entry in status["lists"] for position in entry["positions"]}
