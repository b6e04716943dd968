"""Functions: libraries are the same at all nodes, outlive nodes, and are exchanged with a real Redis and with snapshots."""

import re
import shutil
import subprocess
import threading
import time

import pytest
import redis
from redis.cluster import ClusterNode, RedisCluster

from conftest import TIMEOUT_S, free_base, once_done, once_served, set_all, until
from test_slots import move
from test_snapshot import done, paritas

COUNTER = """#!lua name=counter
local function add(keys, args)
  return redis.call('incrby', keys[1], args[1])
end
redis.register_function('add', add)
redis.register_function{function_name='read', callback=function(keys) return redis.call('get', keys[1]) end,
                        flags={'no-writes'}, description='tells a counter'}
"""


def tells(text, name="teller"):
    """A library with a function that answers this text."""
    return f"#!lua name={name}\nredis.register_function('{name}', function() return '{text}' end)"


def names(client):
    """Names of all libraries. A pair of lists, or a map, each."""
    return sorted(dict(zip(one[::2], one[1::2]))["library_name"] for one in client.function_list())


@pytest.fixture
def empty(cluster):
    cluster.client().function_flush()
    return cluster


@pytest.mark.parametrize("protocol", [2, 3])
def test_the_functions_of_redis_py(empty, protocol):
    clients = [empty.client(node, protocol=protocol) for node in range(6)]
    first, last = clients[0], clients[5]
    assert first.function_load(COUNTER) == "counter"
    with pytest.raises(redis.ResponseError, match="Library 'counter' already exists"):
        last.function_load(COUNTER)
    assert last.function_load(COUNTER, replace=True) == "counter"
    for n, client in enumerate(clients):
        assert client.fcall("add", 1, f"function:{protocol}:{n}", 5) == 5
        assert client.fcall_ro("read", 1, f"function:{protocol}:{n}") == "5"
        with pytest.raises(redis.ResponseError, match="Can not execute a script with write flag"):
            client.fcall_ro("add", 1, "x", 1)
        assert "counter" in str(client.function_list(library="c*", withcode=True))
        assert "'functions_count', 2" in str(client.function_stats()) or "'functions_count': 2" in str(client.function_stats())
    with pytest.raises(redis.ResponseError, match="No scripts in execution"):
        first.function_kill()
    payload = empty.client(2, decode_responses=False).function_dump()
    assert last.function_delete("counter")
    with pytest.raises(redis.ResponseError, match="Function not found"):
        first.fcall("read", 1, "x")
    assert first.function_restore(payload)
    assert last.function_restore(payload, "REPLACE")
    with pytest.raises(redis.ResponseError, match="Library counter already exists"):
        last.function_restore(payload)
    assert clients[3].fcall("add", 1, f"function:{protocol}:0", 1) == 6
    pipe = clients[4].pipeline()
    pipe.set("{function:pipe}", 1).fcall("add", 1, "{function:pipe}", 2).get("{function:pipe}").fcall("gone", 1, "{function:pipe}")
    replies = pipe.execute(raise_on_error=False)
    assert replies[:3] == [True, 3, "3"] and "Function not found" in str(replies[3])
    assert first.function_flush()
    assert last.function_list() == []


def test_a_cluster_client_loads_at_each_node_and_calls(empty):
    client = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", empty.port + 1_000)], decode_responses=True)
    client.function_load(COUNTER)
    client.function_load(COUNTER, replace=True)
    for n in range(40):
        assert client.fcall("add", 1, f"cluster:function:{n}", n) == n
    client.function_delete("counter")
    client.function_flush()
    client.close()
    assert empty.client().function_list() == []


def test_a_replaced_library_is_never_called_again(empty):
    """Each client sees the number that was loaded last before its call, or a later one."""
    empty.client().function_load(tells(0))
    loaded, ended, problems, calls = [0], threading.Event(), [], [0] * 4

    def call(node):
        client = empty.client(node)
        while not ended.is_set():
            before = loaded[0]
            told = int(client.fcall("teller", 0))
            pipe = client.pipeline()
            pipe.fcall("teller", 1, "{function}k")
            told_in_transaction = int(pipe.execute()[0])
            if told < before or told_in_transaction < told:
                problems.append((before, told, told_in_transaction))
            calls[node] += 1

    def call_until_ended(node):
        try:
            call(node)
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=call_until_ended, args=(node,)) for node in range(4)]
    for thread in threads:
        thread.start()
    client = empty.client(5)
    for number in range(1, 150):
        client.function_load(tells(number), replace=True)
        loaded[0] = number
    until(lambda: problems or min(calls) >= 20, "each thread has called often")
    ended.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    assert problems == []


def test_clients_that_load_at_once_leave_all_their_libraries(empty):
    problems = []

    def load(node):
        try:
            client = empty.client(node)
            for n in range(15):
                client.function_load(tells(n, f"of_{node}_{n}"))
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=load, args=(node,)) for node in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    assert problems == []
    client = empty.client(1)
    assert len(client.function_list()) == 90
    assert client.fcall("of_5_14", 0) == "14"
    client.function_flush()


def test_libraries_outlive_two_nodes_and_a_flush_and_restarts(start_cluster):
    cluster = start_cluster(nodes=8)
    client = cluster.client()
    once_done(lambda: client.function_load(COUNTER))
    # Together more than an object takes, so that they are a large value.
    for n in range(3):
        once_done(lambda n=n: client.function_load(tells(n, f"teller{n}") + "\n-- " + "x" * 60_000, replace=True))
    expected = client.function_list(withcode=True)
    set_all(client, {f"own:{n}": n for n in range(1_000)})
    assert client.dbsize() == 1_000
    client.flushall()
    assert (client.dbsize(), client.keys(), client.randomkey()) == (0, [], None)
    for dead in ((2, 3), (4, 5), (6, 7)):
        ended = cluster.kill(*dead)
        for node in (0, 1):
            there = cluster.client(node)
            once_served(lambda there=there, node=node: there.fcall("add", 1, f"lost:{dead}:{node}", 1))
            assert there.function_list(withcode=True) == expected
            assert there.fcall("teller2", 0) == "2"
        cluster.until_replaced(ended)
        # The processes that were started instead know nothing of their predecessors.
        for node in dead:
            there = cluster.client(node)
            assert once_done(lambda there=there: there.fcall("teller1", 0)) == "1"
            assert there.function_list(withcode=True) == expected
    client.function_delete("counter")
    assert names(cluster.client(5)) == ["teller0", "teller1", "teller2"]


def test_a_flush_beside_libraries_leaves_no_half_of_a_group(empty):
    """Keys of a stream without libraries are deleted at once, wherever the libraries are."""
    client = empty.client()
    client.function_load(COUNTER)

    def keyslot(key):
        return client.execute_command("CLUSTER", "KEYSLOT", key)

    of_libraries = keyslot("functions")
    tag = next(f"{{group{n}}}" for n in range(10_000) if abs(keyslot(f"{{group{n}}}") - of_libraries) > 6_000)
    group = {f"{tag}{n}": "value" for n in range(700)}
    ended, seen, problems = threading.Event(), [set(), set()], []

    def read(node):
        try:
            reader = empty.client(node)
            while not ended.is_set():
                seen[node].add(sum(value is not None for value in reader.mget(list(group))))
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=read, args=(node,)) for node in range(2)]
    for thread in threads:
        thread.start()

    def flushed():
        client.mset(group)
        client.flushall()
        return problems or all(counts >= {0, len(group)} for counts in seen)

    until(flushed, "readers see the group, and nothing of it")
    for _ in range(30):
        flushed()
    ended.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    assert problems == [] and seen == [{0, len(group)}] * 2
    assert names(client) == ["counter"]


def test_libraries_move_with_their_hash_slot_and_are_no_matter_of_rules_for_keys(start_cluster):
    cluster = start_cluster(nodes=6, scheme="4+2")
    client = cluster.client()
    # A rule by which large values would not survive a node.
    for node in range(6):
        cluster.client(node).config_set("redundancy-rules", "* none")
    for n in range(2):
        client.function_load(tells(n, f"teller{n}") + "\n-- " + "x" * 50_000)
    expected = client.function_list(withcode=True)
    slot = client.execute_command("CLUSTER", "KEYSLOT", "functions")
    for stream in ("0/0", "1/1", "0/3"):
        moved = move(cluster, slot, "--to", stream)
        assert moved.returncode == 0, moved
        assert once_served(lambda: client.fcall("teller1", 0)) == "1"
        assert client.function_list(withcode=True) == expected
        once_served(client.flushall)
    ended = cluster.kill(4, 5)
    assert once_done(lambda: cluster.client(1).fcall("teller0", 0)) == "0"
    cluster.until_replaced(ended)
    assert client.function_list(withcode=True) == expected


def test_a_full_memory_evicts_keys_and_no_library(start_cluster):
    cluster = start_cluster(nodes=3, scheme="2+1", policy="allkeys-random")
    client = cluster.client()
    client.function_load(COUNTER)
    value, n = "x" * 30_000, 0
    while int(client.info("stats")["evicted_keys"]) < 2_000:
        set_all(client, {f"fill:{n + at}": value for at in range(500)})
        n += 500
        assert n < 100_000
    assert client.fcall("add", 1, "counter", 5) == 5
    assert names(cluster.client(2)) == ["counter"]


@pytest.fixture
def redis_server(tmp_path):
    """A real Redis, and a client of it that gets bytes."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("redis-server is not installed")
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    if int(re.search(r"v=(\d+)", version)[1]) < 7:
        pytest.skip("this Redis has no functions")
    directory, port = tmp_path / "redis", free_base(1)
    directory.mkdir()
    command = [binary, "--port", str(port), "--dir", str(directory), "--save", "", "--bind", "127.0.0.1", "--enable-debug-command", "yes"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    client = redis.Redis(port=port, socket_timeout=TIMEOUT_S)

    def answers():
        try:
            return client.ping()
        except redis.RedisError:
            return False

    until(answers, "redis answers")
    yield client, directory
    process.kill()
    process.wait()


def test_libraries_are_exchanged_with_a_redis_server_in_both_directions(empty, redis_server):
    server, _ = redis_server
    client = empty.client(decode_responses=False)
    # Redis compresses what is long.
    sources = [COUNTER, tells("x" * 3_000), tells("y", "short")]
    for source in sources:
        client.function_load(source)
    assert server.function_restore(client.function_dump())
    assert server.fcall("short", 0) == b"y" and server.fcall("add", 1, "k", 2) == 2
    client.function_flush()
    assert client.function_restore(server.function_dump())
    assert client.fcall("teller", 0) == b"x" * 3_000
    assert empty.client(3).fcall("add", 1, "function:exchanged", 2) == 2
    client.function_flush()


def test_values_are_dumped_and_restored_by_a_redis_server_and_back(cluster, redis_server):
    server, _ = redis_server
    client = cluster.client(decode_responses=False)
    # Redis compresses what repeats.
    values = [b"", b"1", b"-70000", b"x" * 10_000, bytes(range(256)) * 1_000, b"text " * 400_000]
    for n, value in enumerate(values):
        client.set("{dump}from", value)
        server.restore("k", 0, client.dump("{dump}from"), replace=True)
        assert server.get("k") == value
        client.restore(f"{{dump}}{n}", 60_000, server.dump("k"), replace=True)
        assert cluster.client(3, decode_responses=False).get(f"{{dump}}{n}") == value
        assert 0 < client.pttl(f"{{dump}}{n}") <= 60_000
    server.rpush("list", 1)
    with pytest.raises(redis.ResponseError, match="the payload is a list"):
        client.restore("{dump}list", 0, server.dump("list"))
    with pytest.raises(redis.ResponseError, match="Target key name already exists"):
        client.restore("{dump}0", 0, server.dump("k"))


def test_snapshots_have_libraries_and_files_of_redis_are_restored(start_cluster, redis_server, tmp_path):
    server, directory = redis_server
    cluster = start_cluster(nodes=3, scheme="2+1")
    client = cluster.client()
    client.set("key", "value")
    client.function_load(COUNTER)
    client.function_load(tells("kept"))
    file = tmp_path / "with.rdb"
    assert "; libraries of functions: 2" in done("snapshot", file, cluster.port)
    client.flushall()
    client.function_flush()
    client.function_load(tells("newer"))
    assert "; libraries of functions: 1; 1 left as they were" in done("restore", file, cluster.port, "--keep")
    assert client.fcall("teller", 0) == "newer"
    # A library one of whose functions another library has is not kept: it is not there.
    client.function_flush()
    client.function_load("#!lua name=other\nredis.register_function('teller', function() return 'of another' end)")
    refused = paritas("restore", file, cluster.port, "--keep")
    assert refused.returncode != 0 and "Function teller already exists" in refused.stderr, refused
    client.function_flush()
    assert "; libraries of functions: 2" in done("restore", file, cluster.port + 1)
    assert (client.fcall("teller", 0), client.get("key"), client.fcall("add", 1, "n", 3)) == ("kept", "value", 3)
    # To a Redis, and from it.
    shutil.copy(file, directory / "dump.rdb")
    server.execute_command("DEBUG", "RELOAD", "NOSAVE")
    assert server.get("key") == b"value" and server.fcall("teller", 0) == b"kept"
    server.function_load(tells("of redis " * 100, "other"))
    server.save()
    client.flushall()
    client.function_flush()
    assert "; libraries of functions: 3" in done("restore", directory / "dump.rdb", cluster.port)
    assert client.fcall("other", 0) == "of redis " * 100 and client.get("key") == "value"


@pytest.mark.measures_time
def test_bad_libraries_are_refused_and_nobody_waits_for_them(empty):
    client, other = empty.client(0), empty.client(0)
    client.function_load(COUNTER)
    bad = {
        "endless": "while true do end",
        "recursive": "local function f() return f() + 1 end return f()",
        "long joins": "local s = 'x' while true do s = s .. s end",
        "a table without end": "local t = {} while true do t[#t + 1] = {} end",
        "functions without end": "local n = 0 while true do n = n + 1 redis.register_function('f' .. n, function() end) end",
        "a call": "redis.call('set', 'function:bad', 'x')",
        "too long": "-- " + "x" * 200_000,
    }
    for name, body in bad.items():
        began = time.monotonic()
        with pytest.raises(redis.ResponseError):
            client.function_load(f"#!lua name=bad\n{body}")
        assert time.monotonic() - began < 5, name
        assert other.ping()
    assert names(client) == ["counter"] and client.get("function:bad") is None
