"""A node that is silent but not dead: no supervisor certifies its end, so detection and lease decide (P5.11,
10.2)."""

import os
import signal
import socket
import time

import redis

from conftest import TIMEOUT_S, until
from test_kill import compare, load


def test_a_paused_node_is_replaced_and_never_answers_with_old_values(start_cluster, rng):
    cluster = start_cluster(spares=1)
    values = load(cluster, rng, 1_000)
    victim = rng.randrange(6)
    pid = cluster.pids()[victim]
    asked = (victim + 1) % 6
    # Connected before the pause, so that its first reply afterwards comes from the state it had then.
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


def test_two_silent_nodes_are_stood_in_for_and_get_their_places_back(start_cluster, rng):
    """Six nodes with `4+2` and no spare: the other four serve every key of every list (P10.5)."""
    cluster = start_cluster()
    values = load(cluster, rng, 600)
    # Neighbours: both are parity positions of one list.
    silent = [rng.randrange(6)]
    silent.append((silent[0] + 1) % 6)
    left = next(node for node in range(6) if node not in silent)
    pids = cluster.pids()
    for node in silent:
        os.kill(pids[node], signal.SIGSTOP)
    try:
        client = cluster.client(left, decode_responses=False)

        def served():
            try:
                for key, value in values.items():
                    assert client.get(key) in (value, b"new")
                return all(client.set(key, b"new") for key in values)
            except redis.RedisError:
                return False

        until(served, f"every key while nodes {silent} are silent")
        values = dict.fromkeys(values, b"new")

        def stood_in():
            status = cluster.status(left)
            states = [sorted(p["state"] for p in entry["positions"]) for entry in status["lists"]]
            return all(found == ["live"] * 4 + ["stand-in"] * 2 for found in states)

        until(stood_in, "all positions whole on four nodes")
        compare(cluster, left, values)
    finally:
        for node in silent:
            os.kill(pids[node], signal.SIGCONT)
    until(cluster.is_whole, "all positions live")
    for node in (left, *silent):
        until(lambda: answers(cluster, node), f"node {node} to answer")
        compare(cluster, node, values)


def answers(cluster, node):
    try:
        return cluster.client(node, socket_timeout=TIMEOUT_S).ping()
    except redis.RedisError:
        return False


def test_what_clients_sent_that_gave_up_is_not_run_by_a_node_that_wakes(start_cluster, rng):
    """Each client sends one SET to a node that stands still, gives up, and repeats it at another node."""
    cluster = start_cluster(spares=1)
    victim = rng.randrange(6)
    asked = (victim + 1) % 6
    port = cluster.port + victim
    keys = [f"given-up-{n}" for n in range(60)]
    early = [socket.create_connection(("127.0.0.1", port)) for _ in keys[::3]]
    pid = cluster.pids()[victim]
    os.kill(pid, signal.SIGSTOP)
    try:
        links = early
        for n, key in enumerate(keys):
            is_memcached = n % 3 == 2
            # Every third was connected before, another speaks memcached.
            link = links[n // 3] if n % 3 == 0 else socket.create_connection(("127.0.0.1", port + 2_000 * is_memcached))
            set_ = f"set {key} 0 0 3\r\nold\r\n" if is_memcached else f"*3\r\n$3\r\nSET\r\n${len(key)}\r\n{key}\r\n$3\r\nold\r\n"
            link.sendall(set_.encode())
            link.close()
        client = cluster.client(asked)

        def written():
            try:
                return all(client.set(key, "new") for key in keys)
            except redis.RedisError:
                return False

        until(written, "the other nodes take the writes")
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: answers(cluster, victim), "the node to answer again")
    # It answers a connection that was made after all of those.
    assert {key: client.get(key) for key in keys} == {key: "new" for key in keys}
    until(cluster.is_whole, "all positions live")
    assert {key: client.get(key) for key in keys} == {key: "new" for key in keys}
