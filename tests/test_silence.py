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


def test_with_nobody_to_replace_them_two_silent_nodes_take_only_their_own_keys_along(start_cluster, rng):
    """Six nodes and `4+2`, no spare: the keys of living owners go on being read, in every list (PROTOCOL 4.5, 10.3)."""
    cluster = start_cluster()
    values = load(cluster, rng, 600)
    # Neighbours: they are both parities of one list.
    silent = [rng.randrange(6)]
    silent.append((silent[0] + 1) % 6)
    owner = {}
    for node in range(6):
        strict = cluster.client(node + 1_000, decode_responses=False)
        for key in values:
            try:
                strict.get(key)
                owner[key] = node
            except redis.ResponseError:
                pass
    theirs = [key for key in values if owner[key] not in silent]
    pids = cluster.pids()
    for node in silent:
        os.kill(pids[node], signal.SIGSTOP)
    try:

        def removed():
            """No list waits for the leases of a silent parity: what is read then is not read on an old lease."""
            status = cluster.status(left)
            return status and not any(p["node"] in silent for entry in status["lists"] for p in entry["positions"][4:])

        left = next(node for node in range(6) if node not in silent)
        until(removed, "silent parities to leave their lists")

        def readable():
            try:
                for key in theirs:
                    client = cluster.client(owner[key] + 1_000, decode_responses=False, socket_timeout=1)
                    assert client.get(key) == values[key]
                    client.close()
            except redis.RedisError:
                return False
            return True

        until(readable, f"all keys of living owners while nodes {silent} are silent")
    finally:
        for node in silent:
            os.kill(pids[node], signal.SIGCONT)
    until(cluster.is_whole, "all positions live")
    compare(cluster, 0, values)


def answers(cluster, node):
    try:
        return cluster.client(node, socket_timeout=PATIENCE).ping()
    except redis.RedisError:
        return False
