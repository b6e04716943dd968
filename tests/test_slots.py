"""Slots move from one stream to another while clients of both ports write. No write is lost, doubled or refused."""

import itertools
import json
import subprocess
import time

import pytest
import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.crc import key_slot
from redis.retry import Retry

from conftest import BINARY, TIMEOUT_S, Background, is_refused, once_served, until
from test_kill import Writer, compare, load
from test_large_values import ROOMY, until_only_the_sentinel_has_parts

SLOTS = 16_384


def move(cluster, *words, asked=0):
    """Runs `paritas move-slots` until it ends."""
    command = [BINARY, "move-slots", *map(str, words), "--port", str(cluster.port + asked)]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * TIMEOUT_S, check=False)


def any_status(cluster):
    return until(lambda: next(filter(None, map(cluster.status, range(cluster.nodes))), None), "a node that answers")


def owner(cluster, stream):
    entry, position = map(int, stream.split("/"))
    return any_status(cluster)["lists"][entry]["positions"][position]["node"]


def slot_owners(cluster, node):
    """For each slot, the cluster port that CLUSTER SLOTS of a node names."""
    owners = {}
    for first, last, (_, port, *_rest), *_more in redis.Redis(port=cluster.port + 1000 + node).execute_command("CLUSTER SLOTS"):
        for slot in range(first, last + 1):
            assert slot not in owners, slot
            owners[slot] = port
    return owners


class Counter(Background):
    """Increments keys of its own through one node, several commands at once."""

    def __init__(self, cluster, node):
        super().__init__()
        self.cluster, self.node = cluster, node
        self.counted = {f"count{node}:{n}": 0 for n in range(100)}
        self.uncertain = dict.fromkeys(self.counted, 0)
        self.refusals = []

    def work(self):
        client = self.cluster.client(self.node)
        keys = list(self.counted)
        while not self.ending.is_set():
            # Each key twice in a row: the order of its commands is fixed.
            asked = [key for key in keys[:8] for _ in range(2)]
            keys = keys[8:] + keys[:8]
            pipe = client.pipeline(transaction=False)
            for key in asked:
                pipe.incr(key)
            try:
                answers = pipe.execute(raise_on_error=False)
            except (redis.ConnectionError, redis.TimeoutError):
                client.connection_pool.disconnect()
                answers = [redis.ConnectionError()] * len(asked)
            for key, answer in zip(asked, answers):
                self.note(key, answer)

    def note(self, key, answer):
        if isinstance(answer, int):
            self.counted[key] += 1
            assert self.counted[key] <= answer <= self.counted[key] + self.uncertain[key], (key, answer)
        elif isinstance(answer, redis.ResponseError) and is_refused(answer):
            self.refusals.append(str(answer))
        else:
            assert not isinstance(answer, redis.ResponseError) or str(answer).startswith("UNCERTAIN"), answer
            self.uncertain[key] += 1

    def check(self, node):
        client = self.cluster.client(node)
        for key, counted in self.counted.items():
            found = int(client.get(key) or 0)
            assert counted <= found <= counted + self.uncertain[key], (key, found, counted, self.uncertain[key])


class StrictWriter(Writer):
    """As `Writer`, with a client that follows the slot map."""

    def write(self, client, key, value):
        if not hasattr(self, "strict"):
            retry = Retry(NoBackoff(), 20)
            port = self.cluster.port + 1000 + self.node
            self.strict = RedisCluster("127.0.0.1", port, retry=retry, decode_responses=True)
        # The client retries by itself, with the same value.
        self.strict.set(key, value)
        assert self.strict.get(key) == value
        self.acknowledged += 1
        self.possible[key] = [value]


class Load:
    """Clients of all kinds."""

    def __init__(self, cluster, strict=True):
        self.counters = [Counter(cluster, node) for node in (0, 3)]
        self.writers = [Writer(cluster, 5, "writer5", 300)]
        if strict:
            self.writers.append(StrictWriter(cluster, 1, "strict1", 300))
        for thread in self.all():
            thread.start()
        until(lambda: all(w.acknowledged > 50 or w.broken for w in self.writers), "writers that write")
        until(lambda: all(sum(c.counted.values()) > 500 or c.broken for c in self.counters), "counters that count")

    def all(self):
        return self.counters + self.writers

    def stop(self):
        for thread in self.all():
            thread.stop()

    def check(self, node):
        for thread in self.all():
            thread.check(node)


# No command may be refused, so no other test may make one wait.
@pytest.mark.measures_time
def test_slots_go_to_and_fro_under_load(start_cluster, rng):
    cluster = start_cluster(nodes=6)
    values = load(cluster, rng, 5_000)
    clients = Load(cluster)
    moves = 0
    for first, last, to in [(0, 399, "2/1"), (300, 500, "0/3"), (0, 500, "n4"), (8000, 8100, "2/1"), (8000, 8100, "5/0")]:
        began = time.monotonic()
        done = move(cluster, f"{first}-{last}", "--to", to, "--json", asked=rng.randrange(6))
        assert done.returncode == 0, done.stderr
        steps = [json.loads(line) for line in done.stdout.splitlines()]
        there = [step["moved_slots"] for step in steps]
        assert there == sorted(there) and there[-1] == last - first + 1, steps
        assert steps[-1]["state"] == "done"
        node = owner(cluster, f"{steps[-1]['list']}/{steps[-1]['position']}")
        assert to.startswith("n") is False or node == int(to[1:])

        def all_know(node=node, first=first, last=last):
            maps = [slot_owners(cluster, asked) for asked in range(6)]
            assert all(len(owners) == SLOTS for owners in maps)
            return all(owners[slot] == cluster.port + 1000 + node for owners in maps for slot in range(first, last + 1))

        until(all_know, f"all nodes know where slots {first}-{last} are")
        moves += 1
        print(f"slots {first}-{last} to {to} in {time.monotonic() - began:.2f} s under load")
    clients.stop()
    for writer in clients.writers:
        assert (writer.refused, writer.uncertain) == (0, 0), "a move of slots made a command fail"
    for counter in clients.counters:
        assert not counter.refusals and not sum(counter.uncertain.values())
    print([w.acknowledged for w in clients.writers], [sum(c.counted.values()) for c in clients.counters])
    keys = len(values) + sum(len(w.possible) for w in clients.writers) + sum(len(c.counted) for c in clients.counters)
    for node in range(cluster.nodes):
        compare(cluster, node, values)
        clients.check(node)
    # The moved slots leave nothing behind in their old stream.
    until(lambda: once_served(cluster.client().dbsize) == keys, "as many keys as were written")
    found = cluster.client().keys()
    assert len(found) == len(set(found)) == keys
    assert len(set(cluster.client().scan_iter(count=1000))) == keys
    shards = redis.Redis(port=cluster.port + 1000, decode_responses=True).execute_command("CLUSTER SHARDS")
    assert shards
    said = redis.Redis(port=cluster.port + 1000, decode_responses=True).execute_command("CLUSTER NODES")
    assert said


def test_owners_of_both_ends_die_in_the_midst(start_cluster, rng):
    cluster = start_cluster(nodes=6)
    values = load(cluster, rng, 5_000)
    clients = Load(cluster, strict=False)
    for turn in range(4):
        first, to = rng.randrange(15_000), f"{rng.randrange(6)}/{rng.randrange(4)}"
        end = "source" if turn % 2 else "destination"
        owners = slot_owners(cluster, 0)
        victim = owners[first] - cluster.port - 1000 if end == "source" else owner(cluster, to)
        ordered = move(cluster, f"{first}-{first + 1000}", "--to", to, "--no-wait", asked=(victim + 1) % 6)
        if "they are all of" in ordered.stderr:
            continue
        assert ordered.returncode == 0, ordered.stderr
        enough = rng.choice([0, 1, 200, 600])
        until(lambda enough=enough: any_status(cluster)["slots"]["moved_slots"] >= enough, f"{enough} slots to be moved")
        dead = cluster.kill(victim)
        cluster.until_replaced(dead)

        def ended():
            slots = any_status(cluster)["slots"]
            if slots["state"] == "given-up":
                # Every attempt fails while the owner is away, which is long on a busy machine.
                again = move(cluster, f"{first}-{first + 1000}", "--to", to, "--no-wait")
                # The status may be older than an order before.
                known = "are being moved" in again.stderr or "they are all of" in again.stderr
                assert again.returncode == 0 or known, again.stderr
            return slots if slots["state"] == "done" else None

        slots = until(ended, "all slots to be moved")
        assert slots["moved_slots"] == 1001, slots
    clients.stop()
    print([(w.acknowledged, w.refused, w.uncertain) for w in clients.writers])
    for node in range(cluster.nodes):
        compare(cluster, node, values)
        clients.check(node)
    keys = len(values) + sum(len(w.possible) for w in clients.writers) + sum(len(c.counted) for c in clients.counters)
    until(lambda: once_served(cluster.client().dbsize) <= keys, "nothing to be left behind")
    found = cluster.client().keys()
    assert len(found) == len(set(found)) <= keys


def test_what_cannot_be_moved_is_said(start_cluster):
    cluster = start_cluster(nodes=6)
    for words, why in [
        (["9-3", "--to", "0/0"], "FIRST-LAST"),
        (["0-16384", "--to", "0/0"], "slots are 0 to 16383"),
        (["0-9", "--to", "77/0"], "no data position"),
        (["0-9", "--to", "0/4"], "no data position"),
        (["0-9", "--to", "n77"], "holds no data position"),
        (["--stop"], "no slots are being moved"),
    ]:
        refused = move(cluster, *words)
        assert refused.returncode != 0 and why in refused.stderr, (words, refused)


class LargeWriter(Background):
    """Writes one large key again and again, of which each value has another length."""

    def __init__(self, cluster, node, key, pause_s):
        super().__init__()
        self.cluster, self.node, self.key, self.pause_s = cluster, node, key, pause_s
        self.possible, self.acknowledged = [None], 0

    def value(self, n):
        return f"{n};".encode() * (400_000 + 1_000 * (n % 50))

    def work(self):
        client = self.cluster.client(self.node, decode_responses=False)
        while not self.ending.wait(self.pause_s):
            value = self.value(self.acknowledged + 1)
            self.possible.append(value)
            try:
                client.set(self.key, value)
            except redis.ResponseError as error:
                # On a busy machine a step of the move may take longer than a command waits.
                assert is_refused(error), error
                assert self.possible.pop() == value and once_served(lambda: client.get(self.key)) == self.possible[0]
                continue
            self.acknowledged += 1
            self.possible = [value]
            assert once_served(lambda: client.get(self.key)) == value


def test_large_values_move_to_a_new_node_with_their_slots(start_cluster, rng):
    cluster = start_cluster(spares=1, memory=ROOMY)
    client = cluster.client(decode_responses=False)
    # Slots 0 to 1999 have a few of them, with classes and expiry times of all kinds.
    names = (f"{{{n}}}" for n in itertools.count())
    tags = list(itertools.islice((name for name in names if key_slot(name.encode()) < 2_000), 14))
    values, classes = {}, itertools.cycle(["ec:4,2", "rep:3", "eor:3,4", "ec:2,2"])
    for n, tag in enumerate(tags):
        key = f"{tag}:large"
        values[key] = rng.randbytes((1 << 20) + n * 12_345)
        client.set(key, values[key], ex=10_000 if n % 2 else None)
        client.execute_command("PARITAS.REDUNDANCY", key, next(classes))
        values[f"{tag}:small"] = rng.randbytes(100)
        client.set(f"{tag}:small", values[f"{tag}:small"])
    client.copy(f"{tags[0]}:large", f"{tags[0]}:copy")
    values[f"{tags[0]}:copy"] = values[f"{tags[0]}:large"]
    kinds = {key: client.execute_command("PARITAS.REDUNDANCY", key) for key in values if not key.endswith("small")}
    # The new node gets the positions of another one, and then slots of the others.
    drained = subprocess.run([BINARY, "drain", "2", "--port", str(cluster.port)], capture_output=True, text=True, timeout=2 * TIMEOUT_S, check=False)
    assert drained.returncode == 0, drained.stderr
    until(cluster.is_whole, "all positions live")
    writer = LargeWriter(cluster, 3, f"{tags[1]}:written", 0.2)
    writer.start()
    until(lambda: writer.acknowledged > 3 or writer.broken, "a writer that writes")
    for to in ["n6", "n4", "n6"]:
        began = time.monotonic()
        done = move(cluster, "0-1999", "--to", to, "--json", asked=1)
        assert done.returncode == 0, done.stdout.splitlines()[-1:] + [done.stderr]
        last = json.loads(done.stdout.splitlines()[-1])
        assert (last["state"], last["moved_slots"]) == ("done", 2_000), last
        print(f"2000 slots with {len(kinds)} large values to {to} in {time.monotonic() - began:.2f} s")
        for node in (0, 6):
            there = cluster.client(node, decode_responses=False)
            for key, value in values.items():
                assert there.get(key) == value, key
    writer.stop()
    assert client.get(writer.key) in writer.possible and writer.acknowledged > 10
    for key, class_ in kinds.items():
        assert client.execute_command("PARITAS.REDUNDANCY", key) == class_
    for n, tag in enumerate(tags):
        assert (9_000 < client.ttl(f"{tag}:large") <= 10_000) if n % 2 else client.ttl(f"{tag}:large") == -1
    # The old parts are gone, and the new ones bear two losses.
    dead = cluster.kill(0, 6)
    for key, value in values.items():
        assert once_served(lambda: cluster.client(1, decode_responses=False).get(key)) == value, key
    cluster.until_replaced(dead)
    cluster.client(1).delete(*values, writer.key)
    until_only_the_sentinel_has_parts(cluster, 1)
