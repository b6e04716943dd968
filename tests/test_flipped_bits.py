"""Memory errors: a bit in a chunk of a running process flips, and one pass of the scrub finds and repairs it.

The binary is built with `--features mutants` and so has `CONFIG SET flip-bit`. A release build does not have it.
"""

import os
import threading

import pytest
import redis
from conftest import set_all, until

FAULTY = os.environ.get("PARITAS_FAULTY_BIN")
pytestmark = [
    pytest.mark.skipif(not FAULTY, reason="PARITAS_FAULTY_BIN names no build with --features mutants"),
    pytest.mark.timeout(900),
]

CHUNK_BITS = 8 * 16_384
KEYS = 3_000
COUNTERS = 20
SCRUB_RATE = "256mb"


class Memory:
    """A cluster whose nodes scrub all their chunks quickly, and its lists."""

    def __init__(self, start_cluster, rng, nodes, scheme):
        self.cluster = start_cluster(
            nodes=nodes, scheme=scheme, memory="64mb", binary=FAULTY, more=("--scrub-rate", SCRUB_RATE)
        )
        self.rng = rng
        self.data = int(scheme.split("+")[0])
        self.clients = [self.cluster.client(node) for node in range(nodes)]
        self.values = {f"key{n}": rng.randbytes(500).hex() for n in range(KEYS)}
        set_all(self.clients[0], self.values | {f"counter{n}": 10_000_000 for n in range(COUNTERS)})

    def holders(self, which):
        """`(list, position, node)` of each data, or parity, position."""
        return [
            (entry["id"], at, position["node"])
            for entry in self.cluster.status()["lists"]
            for at, position in enumerate(entry["positions"])
            if (at < self.data) == (which == "data")
        ]

    def flip(self, list_id, position, node, kind, number):
        """Flips a bit. Returns false if there is no such chunk."""
        bit = self.rng.randrange(CHUNK_BITS)
        try:
            return self.clients[node].config_set("flip-bit", f"{list_id} {position} {kind} {number} {bit}")
        except redis.ResponseError as error:
            assert "no such chunk" in str(error)
            return False

    def scrub(self, rate):
        for client in self.clients:
            assert client.config_set("scrub-rate", rate)

    def figure(self, name):
        return [client.info()[name] for client in self.clients]

    def one_pass(self):
        """Waits for two passes: the one under way may be beyond the flip, the next is complete."""
        before = self.figure("scrub_passes")
        # Each reads all memory, beside the other tests of a busy machine.
        until(lambda: all(now >= then + 2 for now, then in zip(self.figure("scrub_passes"), before)), "two passes", timeout_s=300)

    def found(self):
        return sum(self.figure("scrub_bad_chunks")), sum(self.figure("scrub_repaired_chunks"))

    def all_there(self):
        for client in self.rng.sample(self.clients, 2):
            keys = list(self.values)
            self.rng.shuffle(keys)
            for at in range(0, KEYS, 500):
                some = keys[at : at + 500]
                assert client.mget(some) == [self.values[key] for key in some]


class Counting(threading.Thread):
    """Increments counters until told to stop. All increments must be there at the end."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client = client
        self.over = threading.Event()
        self.counts = [10_000_000] * COUNTERS
        self.wrong = []

    def run(self):
        while not self.over.is_set():
            for n, expected in enumerate(self.counts):
                found = self.client.incr(f"counter{n}")
                if found != expected + 1:
                    self.wrong.append((n, expected, found))
                self.counts[n] = found

    def stop(self):
        self.over.set()
        self.join()
        assert not self.wrong
        assert self.counts[0] > 10_000_000


# The kind of position whose chunk gets a flipped bit, the kind of chunk, and whether clients write meanwhile. They
# write to counters, which come after all keys, but not while an index page may be wrong (P9.3, "What this
# cannot do").
KINDS = [("data", "data", True), ("data", "index", False), ("parity", "data", True), ("parity", "index", True)]


@pytest.mark.parametrize(("nodes", "scheme"), [(6, "4+2"), (5, "4+1")])
def test_each_flipped_bit_is_found_and_repaired_by_one_pass(start_cluster, rng, nodes, scheme):
    memory = Memory(start_cluster, rng, nodes, scheme)
    memory.one_pass()
    assert memory.found() == (0, 0)
    lists = sorted({list_id for list_id, *_ in memory.holders("data")})
    flipped = 0
    for holders, kind, busy in KINDS:
        counting = Counting(memory.cluster.client(1))
        counting.counts = [int(n) for n in memory.clients[0].mget([f"counter{n}" for n in range(COUNTERS)])]
        if busy:
            counting.start()
        # One chunk in each list, of stripes that all owners have and that hold no counter.
        now = 0
        for list_id in lists:
            mine = [holder for holder in memory.holders(holders) if holder[0] == list_id]
            number = rng.randrange(2) if kind == "data" else 0
            now += bool(memory.flip(*rng.choice(mine), kind, number))
        assert now == len(lists), f"{holders} {kind}"
        flipped += now
        memory.one_pass()
        if busy:
            counting.stop()
        until(lambda: memory.found() == (flipped, flipped), lambda: f"{holders} {kind}: {memory.found()}")
        memory.all_there()
    scrub = memory.cluster.status()["scrub"]
    until(lambda: memory.cluster.status()["scrub"]["repaired_chunks"] == flipped, f"the coordinator to know: {scrub}")
    # The other nodes' chunks are right as well: a successor decodes from them.
    memory.cluster.until_replaced(memory.cluster.kill(rng.randrange(1, nodes)))
    memory.clients = [memory.cluster.client(node) for node in range(nodes)]
    memory.all_there()


def test_a_flipped_bit_in_a_large_value_is_found_and_repaired(start_cluster, rng):
    memory = Memory(start_cluster, rng, 6, "4+2")
    large = {f"large{n}": rng.randbytes(1 << 19).hex() for n in range(8)}
    for key, value in large.items():
        memory.clients[0].set(key, value)
    flipped = 0
    for list_id, position, node in rng.sample(memory.holders("data") + memory.holders("parity"), 12):
        flipped += bool(memory.flip(list_id, position, node, "unit", rng.randrange(32)))
        # A value bears two wrong units of a row at a time.
        until(lambda: memory.found() == (flipped, flipped), "the flip to be found and repaired")
    assert flipped >= 3, "a node with a position of each list has parts"
    memory.one_pass()
    assert memory.found() == (flipped, flipped)
    # Parts that were made again are right: others are made from them.
    memory.cluster.until_replaced(memory.cluster.kill(rng.randrange(1, 6)))
    for key, value in large.items():
        assert memory.cluster.client(0).get(key) == value


def test_what_cannot_be_repaired_is_said_and_never_answered_with(start_cluster, rng):
    memory = Memory(start_cluster, rng, 5, "4+1")
    data = rng.choice(memory.holders("data"))
    parity = next(holder for holder in memory.holders("parity") if holder[0] == data[0])
    number = rng.randrange(2)
    # Between the two flips the first one could be repaired.
    memory.scrub("0")
    assert memory.flip(*parity, "data", number) and memory.flip(*data, "data", number)
    memory.scrub(SCRUB_RATE)
    until(lambda: memory.found()[0] > 0, "the flip to be found")
    until(lambda: memory.figure("absent_chunks")[data[2]] == 1, "the chunk to be absent")
    wrong, refused = [], 0
    for key, value in memory.values.items():
        try:
            if memory.clients[0].get(key) != value:
                wrong.append(key)
        except redis.exceptions.TryAgainError:
            refused += 1
        if refused > 1:
            break
    assert not wrong and refused > 1
    assert memory.found()[1] == 0
    scrub = until(lambda: (s := memory.cluster.status()["scrub"])["bad_chunks"] and s, "the coordinator to know")
    assert scrub["repaired_chunks"] == 0 and "memory may be bad" in memory.cluster.logs()
