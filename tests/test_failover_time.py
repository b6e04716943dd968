"""The time for which the keys of a killed node do not answer: from SIGKILL to the first correct reply. The keys are
asked for every 5 ms through another node (docs/operate.md)."""

import os
import statistics
import time

import pytest
import redis

from conftest import TIMEOUT_S
from test_kill import Writer, load

pytestmark = pytest.mark.measures_time

# Use KILLS=20 for a figure to publish.
KILLS = int(os.environ.get("KILLS", "10"))


def silence(cluster, victim, asked, values):
    """Kills a node. Returns the seconds until each of its keys among `values` has had a correct reply."""
    client = cluster.client(asked, decode_responses=False, socket_timeout=TIMEOUT_S)
    pid = cluster.pids()[victim]
    began = time.monotonic()
    cluster.kill_process(pid)
    while True:
        try:
            if all(client.get(key) == value for key, value in values.items()):
                return pid, time.monotonic() - began
        except redis.RedisError:
            pass
        assert time.monotonic() - began < TIMEOUT_S
        time.sleep(0.005)


def keys_of(cluster, node, values):
    """Some of the keys that the node owns: it answers them on its cluster port."""
    strict = cluster.client(node + 1_000, decode_responses=False)
    found = {}
    for key, value in values.items():
        try:
            if strict.get(key) == value:
                found[key] = value
        except redis.ResponseError:
            continue
        if len(found) == 20:
            break
    assert found
    return found


def test_a_killed_nodes_keys_answer_soon(start_cluster, rng):
    cluster = start_cluster()
    values = load(cluster, rng, 2_000)
    took = []
    for n in range(KILLS):
        victim = n % cluster.nodes
        asked = (victim + 1 + rng.randrange(cluster.nodes - 1)) % cluster.nodes
        writer = Writer(cluster, asked, f"writer{n}", 100)
        writer.start()
        dead, seconds = silence(cluster, victim, asked, keys_of(cluster, victim, values))
        took.append(seconds)
        cluster.until_replaced([dead])
        writer.stop()
    print(f"median {statistics.median(took):.3f} s, all:", [f"{seconds:.3f}" for seconds in sorted(took)])
    assert statistics.median(took) < 0.5
