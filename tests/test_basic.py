"""The first commands of every client."""

import os
import socket
import subprocess

import pytest
import redis

from conftest import BINARY, TIMEOUT_S


def test_ping_set_get_del_through_every_node(cluster):
    for node in range(cluster.nodes):
        client = cluster.client(node)
        assert client.ping()
        assert client.set(f"basic:{node}", f"value {node}")
    for node in range(cluster.nodes):
        client = cluster.client(node)
        for other in range(cluster.nodes):
            assert client.get(f"basic:{other}") == f"value {other}"
    client = cluster.client()
    assert client.get("basic:nothing") is None
    assert client.delete("basic:0") == 1
    assert client.delete("basic:0") == 0
    assert cluster.client(3).get("basic:0") is None


def test_values_of_every_length_come_back(cluster, rng):
    client = cluster.client(decode_responses=False)
    lengths = [0, 1, 2, 30, 31, 63, 64, 255, 256, 4_095, 16_383, 16_384, 16_385, 40_000, 65_536]
    values = {f"length:{length}": rng.randbytes(length) for length in lengths}
    for key, value in values.items():
        assert client.set(key, value)
    for key, value in values.items():
        assert client.get(key) == value, key
    # Overwritten in place, longer, shorter.
    for key in values:
        values[key] = rng.randbytes(rng.choice([len(values[key]), rng.randrange(60_000)]))
        assert client.set(key, values[key])
    for key, value in values.items():
        assert cluster.client(4, decode_responses=False).get(key) == value, key


def test_counters_count(cluster):
    client = cluster.client(1)
    assert [client.incr("counter") for _ in range(5)] == [1, 2, 3, 4, 5]
    assert cluster.client(2).incrby("counter", 10) == 15
    client.set("counter:text", "no number")
    with pytest.raises(redis.ResponseError, match="value is not an integer or out of range"):
        client.incr("counter:text")
    assert client.get("counter:text") == "no number"


def test_a_pipeline_is_answered_in_order(cluster):
    with cluster.client(2).pipeline(transaction=False) as pipe:
        for n in range(2_000):
            pipe.set(f"pipe:{n % 700}", n)
            pipe.get(f"pipe:{n % 700}")
        replies = pipe.execute()
    assert replies[1::2] == [str(n) for n in range(2_000)]


def test_who_sends_and_stops_sending_gets_all_replies(cluster):
    """As `printf ... | nc -N` does. Most of these keys belong to other nodes."""
    client = cluster.client()
    for n in range(20):
        client.set(f"half:{n}", n)
        with socket.create_connection(("127.0.0.1", cluster.port), timeout=TIMEOUT_S) as connection:
            connection.sendall(f"GET half:{n}\r\nMGET half:0 half:{n}\r\nDBSIZE\r\n".encode())
            connection.shutdown(socket.SHUT_WR)
            replies = b""
            while part := connection.recv(65_536):
                replies += part
        value = f"${len(str(n))}\r\n{n}\r\n"
        assert replies.decode().startswith(f"{value}*2\r\n$1\r\n0\r\n{value}:"), replies


def test_unknown_commands_and_wrong_arity_are_errors(cluster):
    client = cluster.client()
    with pytest.raises(redis.ResponseError, match="^unknown command"):
        client.execute_command("NOSUCHCOMMAND", "a", "b")
    with pytest.raises(redis.ResponseError, match="wrong number of arguments for 'get' command"):
        client.execute_command("GET")
    with pytest.raises(redis.ResponseError, match="syntax error"):
        client.execute_command("SET", "arity", "1", "NX", "XX")
    assert client.get("arity") is None
    assert client.ping()


def test_status_says_what_scripts_read(cluster):
    status = cluster.status(5)
    assert [node["id"] for node in status["nodes"]] == list(range(cluster.nodes))
    for node in status["nodes"]:
        assert node["state"] == "live" and node["role"] == "member" and node["pid"] > 0
        assert node["address"] == f"127.0.0.1:{cluster.port + node['id']}"
        assert node["cluster_address"] == f"127.0.0.1:{cluster.port + 1_000 + node['id']}"
    assert status["lists"]
    for entry in status["lists"]:
        assert entry["epoch"] >= 1
        assert [position["state"] for position in entry["positions"]] == ["live"] * 6
        assert len({position["node"] for position in entry["positions"]}) == 6
    assert set(status["rebuild"]) >= {"done_bytes", "total_bytes", "bytes_per_second", "eta_seconds"}
    assert set(status["memory"]) >= {"objects", "user_bytes", "by_kind"}


def test_status_ends_quietly_when_nobody_reads(cluster):
    status = [BINARY, "status", "--port", str(cluster.port)]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as nobody:
        ended = subprocess.run(status, stdout=nobody, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    with open("/dev/full", "w", encoding="utf-8") as full:
        ended = subprocess.run(status, stdout=full, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False)
    assert ended.returncode == 1 and ended.stderr.startswith("paritas: standard output: "), ended.stderr
