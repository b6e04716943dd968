"""A node that is silent but not dead: nobody certifies its end, so detection and lease decide (PROTOCOL 5.11, 10.2)."""

import os
import signal
import time

import redis

from conftest import PATIENCE, until
from test_kill import compare, load


def test_a_paused_node_is_replaced_and_never_answers_with_old_values(start_cluster, rng):
    cluster = start_cluster(spares=1)
    values = load(cluster, rng, 1_000)
    victim = rng.randrange(6)
    pid = cluster.pids()[victim]
    asked = (victim + 1) % 6
    # Connected before, so that its first reply after the pause comes from what it knows then.
    strict = cluster.client(victim + 1_000, decode_responses=False)
    own = []
    for key in values:
        try:
            strict.get(key)
            own.append(key)
        except redis.ResponseError:
            pass
    assert own
    began = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    try:
        client = cluster.client(asked, decode_responses=False)

        def written():
            try:
                return all(client.set(key, b"new") for key in own)
            except redis.RedisError:
                return False

        until(written, "the paused node's keys take writes")
        print(f"silent for {time.monotonic() - began:.1f} s")
        values.update({key: b"new" for key in own})
        compare(cluster, asked, values)
    finally:
        os.kill(pid, signal.SIGCONT)
    for key in own:
        try:
            found = strict.get(key)
        except redis.RedisError:
            continue
        assert found == b"new", key
    until(cluster.is_whole, "all positions live")
    for node in range(cluster.nodes):
        until(lambda: answers(cluster, node), f"node {node} to answer")
        compare(cluster, node, values)


def answers(cluster, node):
    try:
        return cluster.client(node, socket_timeout=PATIENCE).ping()
    except redis.RedisError:
        return False
