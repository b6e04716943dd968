"""Stock clients, cluster-aware and not."""

import re
import shutil
import socket
import subprocess
import time

import pytest
import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry

from conftest import TIMEOUT_S


def cli(cluster, *arguments, offset=0, node=0):
    """The output of redis-cli."""
    command = ["redis-cli", "-p", str(cluster.port + offset + node), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return done.stdout.strip()


def strict(cluster, **options):
    nodes = [ClusterNode("127.0.0.1", cluster.port + 1_000 + node) for node in range(2)]
    return RedisCluster(startup_nodes=nodes, decode_responses=True, socket_timeout=TIMEOUT_S, **options)


needs_cli = pytest.mark.skipif(not shutil.which("redis-cli"), reason="redis-cli is not installed: run make tools")


@needs_cli
def test_redis_cli_plain_and_in_cluster_mode(cluster):
    for n in range(20):
        assert cli(cluster, "set", f"cli:{n}", str(n), node=n % 6) == "OK"
        assert cli(cluster, "-c", "get", f"cli:{n}", offset=1_000, node=(n + 1) % 6) == str(n)
    assert "MOVED" in "".join(cli(cluster, "get", f"cli:{n}", offset=1_000) for n in range(20))


@needs_cli
def test_redis_cli_pipe_loads_everything(cluster):
    commands = b"".join(
        b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(key), key, len(value), value)
        for key, value in ((b"load:%d" % n, b"v" * (n % 3_000)) for n in range(5_000))
    )
    command = ["redis-cli", "-p", str(cluster.port + 2), "--pipe"]
    done = subprocess.run(command, input=commands, capture_output=True, timeout=TIMEOUT_S, check=True)
    assert b"errors: 0, replies: 5000" in done.stdout, done.stdout
    client = cluster.client(4)
    assert all(client.strlen(f"load:{n}") == n % 3_000 for n in range(0, 5_000, 97))


@pytest.mark.skipif(not shutil.which("redis-benchmark"), reason="redis-benchmark is not installed: run make tools")
@pytest.mark.parametrize("mode", [(), ("--cluster",)])
def test_redis_benchmark_runs(cluster, mode):
    port = cluster.port + (1_000 if mode else 0)
    tests = "set,get,incr" if mode else "set,get,incr,mset"
    command = ["redis-benchmark", "-p", str(port), *mode, "-t", tests, "-n", "5000", "-c", "20", "-P", "4", "-r", "1000"]
    done = subprocess.run([*command, "-q"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert len(re.findall(r"[\d.]+ requests per second", done.stdout)) >= len(tests.split(",")), done.stdout + done.stderr
    assert "rror" not in done.stdout + done.stderr.replace("WARNING: Could not fetch server CONFIG", ""), done.stderr


def test_a_cluster_client_finds_every_key(cluster):
    with strict(cluster) as client:
        for n in range(300):
            assert client.set(f"strict:{n}", n)
        assert [client.get(f"strict:{n}") for n in range(300)] == [str(n) for n in range(300)]
        assert client.mset({"{tag}a": "1", "{tag}b": "2"})
        assert client.mget("{tag}a", "{tag}b") == ["1", "2"]
        assert client.delete("strict:7") == 1 and client.get("strict:7") is None
    assert cluster.client(3).get("strict:8") == "8"


def test_the_strict_port_is_a_cluster_and_the_other_is_not(cluster):
    one = redis.Redis(port=cluster.port + 1_000, decode_responses=True)
    with pytest.raises(redis.ResponseError, match="CROSSSLOT|[Kk]eys in request don't hash to the same slot"):
        one.execute_command("MGET", "a", "b", "c")
    assert cluster.client().mset({"a": "1", "b": "2", "c": "3"})
    assert cluster.client(5).mget("a", "b", "c", "no such key") == ["1", "2", "3", None]


def test_gathered_commands_speak_for_the_cluster(start_cluster):
    cluster = start_cluster(nodes=3, scheme="2+1")
    client = cluster.client(1)
    keys = [f"gather:{n}" for n in range(500)]
    with client.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.set(key, "x")
        pipe.execute()
    assert client.dbsize() == 500
    assert sorted(client.keys("gather:*")) == sorted(keys)
    assert set(client.scan_iter(match="gather:*", count=50)) == set(keys)
    assert client.exists(*keys[:50], "no such key") == 50
    assert client.touch(*keys[:10]) == 10
    assert client.delete(*keys[:100]) == 100
    assert client.unlink(*keys[100:200], "no such key") == 100
    assert client.dbsize() == 300
    with strict(cluster) as whole:
        assert whole.dbsize(target_nodes=RedisCluster.PRIMARIES) == 300
    assert client.flushall()
    assert client.dbsize() == 0 and client.get(keys[300]) is None
    assert client.set("after", "1") and client.dbsize() == 1


def test_a_cluster_client_rides_over_a_death(start_cluster):
    cluster = start_cluster()
    # The client retries only by reading the slot map again; any other error is raised here.
    with strict(cluster, retry=Retry(NoBackoff(), 10)) as client:
        for n in range(500):
            client.set(f"ride:{n}", n)
        dead = cluster.kill(3)
        cluster.until_replaced(dead)
        assert [client.get(f"ride:{n}") for n in range(500)] == [str(n) for n in range(500)]


def test_a_pause_ends_by_itself(cluster):
    asks, writes = cluster.client(), cluster.client()
    begin = time.monotonic()
    assert asks.client_pause(500, all=False)
    assert writes.get("paused") is None
    assert writes.set("paused", "1")
    assert time.monotonic() - begin >= 0.5
    assert asks.client_pause(600_000)
    assert asks.client_unpause()
    assert writes.get("paused") == "1"


def test_a_quiet_connection_gets_no_reply_until_it_wants_them(cluster):
    with socket.create_connection(("127.0.0.1", cluster.port), timeout=10) as quiet:
        lines = ["CLIENT REPLY OFF", *(f"SET quiet:{n} {n}" for n in range(100)), "NOSUCH", "CLIENT REPLY ON", "PING"]
        quiet.sendall("".join(line + "\r\n" for line in lines).encode())
        got = b""
        while not got.endswith(b"+PONG\r\n"):
            got += quiet.recv(4096) or pytest.fail(f"closed after {got}")
        assert got == b"+OK\r\n+PONG\r\n"
    assert cluster.client(2).mget([f"quiet:{n}" for n in range(100)]) == [str(n) for n in range(100)]


def test_keys_are_renamed_over_all_nodes(cluster):
    client = cluster.client(1)
    for n in range(100):
        assert client.set(f"old:{n}", f"{n}" * 1000, ex=1000)
        assert client.rename(f"old:{n}", f"new:{n}")
        assert client.copy(f"new:{n}", f"copy:{n}")
    assert client.exists(*(f"old:{n}" for n in range(100))) == 0
    for name in ["new", "copy"]:
        assert client.mget([f"{name}:{n}" for n in range(100)]) == [f"{n}" * 1000 for n in range(100)]
    assert 0 < client.ttl("copy:7") <= 1000
