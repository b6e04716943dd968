"""Nodes die while clients write. No acknowledged write may be lost, and no value may be wrong."""

import time

import redis

from conftest import Background, is_refused, once_served, set_all


class Writer(Background):
    """Writes numbered values to its keys through one node until told to stop, and records the possible values of each
    key."""

    def __init__(self, cluster, node, name, keys):
        super().__init__()
        self.cluster, self.node, self.name_, self.keys = cluster, node, name, keys
        self.possible = {}
        self.acknowledged = self.refused = self.uncertain = 0

    def work(self):
        n = 0
        client = self.cluster.client(self.node)
        while not self.ending.is_set():
            n += 1
            key, value = f"{self.name_}:{n % self.keys}", f"{n}:{'v' * (n % 300)}"
            self.write(client, key, value)

    def write(self, client, key, value):
        try:
            client.set(key, value)
        except redis.ResponseError as error:
            if str(error).startswith("UNCERTAIN"):
                # The write may have been done, or may still be done.
                self.uncertain += 1
                self.possible.setdefault(key, [None]).append(value)
            else:
                assert is_refused(error), error
                self.refused += 1
            return
        except (redis.ConnectionError, redis.TimeoutError):
            self.uncertain += 1
            self.possible.setdefault(key, [None]).append(value)
            client.connection_pool.disconnect()
            return
        self.acknowledged += 1
        self.possible[key] = [value]

    def check(self, node):
        client = self.cluster.client(node)
        for key, possible in self.possible.items():
            found = client.get(key)
            assert found in possible, f"{key}: found {found!r}, possible {possible!r}"


def load(cluster, rng, count):
    """Writes values of many sizes in pipelines."""
    client = cluster.client(decode_responses=False)
    values = {}
    for start in range(0, count, 500):
        some = {b"loaded:%d" % n: rng.randbytes(int(rng.expovariate(1 / 700))) for n in range(start, min(start + 500, count))}
        set_all(client, some)
        values |= some
    return values


def compare(cluster, node, values):
    """Compares every value, read through one node."""
    client = cluster.client(node, decode_responses=False)
    keys = list(values)

    def read(part):
        with client.pipeline(transaction=False) as pipe:
            for key in part:
                pipe.get(key)
            return pipe.execute()

    for start in range(0, len(keys), 500):
        part = keys[start : start + 500]
        for key, found in zip(part, once_served(lambda part=part: read(part))):
            assert found == values[key], key


def kill_under_load(cluster, rng, victims, asked):
    """Kills nodes while other nodes are written to and read from. Returns the seconds until a dead node's keys
    answer."""
    values = load(cluster, rng, 5_000)
    writers = [Writer(cluster, node, f"writer{node}", 200) for node in asked]
    for writer in writers:
        writer.start()
    while not all(writer.acknowledged > 200 for writer in writers):
        assert all(writer.broken is None for writer in writers), [writer.broken for writer in writers]
        time.sleep(0.005)
    began = time.monotonic()
    dead = cluster.kill(*victims)
    compare(cluster, asked[0], values)
    answered = time.monotonic() - began
    cluster.until_replaced(dead)
    whole = time.monotonic() - began
    for writer in writers:
        writer.stop()
    print(
        f"killed {victims}: all {len(values)} values read back after {answered:.2f} s, all whole after {whole:.2f} s;",
        [(w.acknowledged, w.refused, w.uncertain) for w in writers],
        "acknowledged, refused, uncertain",
    )
    for node in range(cluster.nodes):
        compare(cluster, node, values)
        for writer in writers:
            writer.check(node)


def test_one_node_dies(start_cluster, rng):
    cluster = start_cluster()
    kill_under_load(cluster, rng, [4], [0, 1])
    kill_under_load(cluster, rng, [0], [2, 5])


def test_three_copies_survive_two_deaths(start_cluster, rng):
    cluster = start_cluster(nodes=3, scheme="1+2")
    kill_under_load(cluster, rng, [1, 2], [0])
