"""What INFO says, as monitoring and `redis-cli --stat` read it."""

import os
import re
import shutil
import subprocess

import pytest
import redis

from conftest import TIMEOUT_S, is_refused, standing_still, until


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) << 10


def test_used_memory_rss_is_what_the_system_says_of_the_process(cluster):
    pid = cluster.pids()[0]
    client = cluster.client(decode_responses=False)
    for n in range(200):
        client.set(f"rss:{n}", os.urandom(50_000))

    def agree():
        told = client.info("memory")["used_memory_rss"]
        return abs(told - resident(pid)) <= resident(pid) // 50

    until(agree, lambda: f"INFO says {client.info('memory')['used_memory_rss']}, the system {resident(pid)}")
    info = client.info("memory")
    assert info["used_memory_rss"] > info["used_memory"] > 0, "code, stacks and the allocator's own memory are more"
    assert info["used_memory_rss_human"] == f"{info['used_memory_rss'] / (1 << 20):.2f}M"
    assert info["maxmemory_human"] == "128.00M" and info["used_memory_peak_human"].endswith("M")


def test_large_values_count_with_their_class(start_cluster):
    cluster = start_cluster(memory="256mb")
    client = cluster.client()

    def used():
        return sum(cluster.client(node).info("memory")["used_memory"] for node in range(6))

    megabytes = 20
    for redundancy, factor in [("none", 1), ("ec:4,2", 1.5), ("rep:3", 3)]:
        before = used()
        for n in range(megabytes):
            client.set(f"large:{n}", "v" * (1 << 20))
            client.execute_command("PARITAS.REDUNDANCY", f"large:{n}", redundancy)
        usage = client.memory_usage("large:0")
        assert abs(usage - factor * (1 << 20)) < 10_000, (redundancy, usage)

        def taken():
            return abs(used() - before - factor * (megabytes << 20)) < (megabytes << 20) // 4

        until(taken, lambda: f"{redundancy}: used_memory grew by {used() - before}")
        client.flushall()
        until(lambda: used() - before < 4 << 20, "the memory of these values to be free")


def test_keys_are_those_of_the_cluster_on_the_any_key_port(start_cluster):
    cluster = start_cluster(nodes=3, scheme="2+1", memory="64mb")
    client = cluster.client()
    for n in range(500):
        client.set(f"key:{n}", n, ex=1000 if n % 5 == 0 else None)
    for node in range(3):
        other = cluster.client(node)
        assert other.dbsize() == 500
        # INFO leaves out a node that does not answer within 0.2 s.
        expected = {"keys": 500, "expires": 100, "avg_ttl": 0}
        until(lambda: other.info("keyspace").get("db0") == expected, f"the keys of all nodes at n{node}")
        until(lambda: other.info().get("db0", {}).get("keys") == 500, f"the keys of all nodes at n{node}")
    own = [redis.Redis(port=cluster.port + 1_000 + node).info("keyspace")["db0"] for node in range(3)]
    assert sum(node["keys"] for node in own) == 500 and all(node["keys"] for node in own)
    if shutil.which("redis-cli"):
        command = ["redis-cli", "-p", str(cluster.port + 1), "--stat", "-i", "0.05"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shown:
            lines = [shown.stdout.readline() for _ in range(4)]
            shown.terminate()
        assert all(line.split()[0] == "500" for line in lines[2:]), lines


def test_info_answers_while_a_node_stands_still(start_cluster):
    cluster = start_cluster(nodes=4, scheme="2+1", memory="64mb")
    client = cluster.client()
    for n in range(400):
        client.set(f"still:{n}", n)
    until(lambda: client.info("keyspace").get("db0", {}).get("keys") == 400, "the keys of all nodes")
    # The coordinator too, which would replace the node.
    with standing_still(cluster.coordinator_pid(), cluster.pids()[3]):
        info = client.info()
        assert info["db0"]["keys"] == 400 and info["silent_streams"] > 0, info
        with pytest.raises(redis.ResponseError) as refused:
            client.dbsize()
        assert is_refused(refused.value), "DBSIZE does not do without the node"
    until(lambda: "silent_streams" not in client.info("keyspace"), "the node to answer again")


def test_what_happens_is_counted(start_cluster):
    cluster = start_cluster(nodes=3, scheme="2+1", memory="64mb")
    clients = [cluster.client(node) for node in range(3)]
    client = clients[0]

    def counted(name):
        return sum(other.info()[name] for other in clients)

    client.set("here", "1")
    client.set("soon", "1", px=1)
    until(lambda: client.get("soon") is None and counted("expired_keys") == 1, "one expired key")
    hits, misses = counted("keyspace_hits"), counted("keyspace_misses")
    assert client.mget("here", "here", "away") == ["1", "1", None]
    assert (counted("keyspace_hits") - hits, counted("keyspace_misses") - misses) == (2, 1)
    before = client.info("cpu")

    def works():
        for n in range(100):
            client.set(f"load:{n}", n)
        now = client.info()
        return now["instantaneous_ops_per_sec"] > 10 and all(
            now[name] > before[name] for name in ("used_cpu_user", "used_cpu_sys")
        )

    until(works, "commands and time of the processor to be counted")


def test_a_new_limit_on_clients_counts_at_once(start_cluster):
    cluster = start_cluster(nodes=3, scheme="2+1", memory="64mb")
    client = cluster.client(single_connection_client=True)
    for most in range(2, 40, 3):
        client.config_set("maxclients", most)
        others = []
        with pytest.raises(redis.ConnectionError, match="max number of clients reached"):
            for _ in range(most):
                others.append(cluster.client(single_connection_client=True))
                others[-1].ping()
        client.config_set("maxclients", most + 1)
        assert cluster.client(single_connection_client=True).ping()
        for other in others:
            other.close()
        until(lambda: len(client.client_list()) == 1, "the others to be gone")
    assert client.info("clients")["maxclients"] == 39
    until(lambda: client.info("stats")["rejected_connections"] == 13, "the refused connections to be counted", TIMEOUT_S)
