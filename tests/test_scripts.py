"""Scripts with stock clients: as libraries use them, also while nodes are killed; and scripts that behave badly."""

import threading
import time

import pytest
import redis
from redis.cluster import ClusterNode, RedisCluster

from conftest import TIMEOUT_S, is_refused, until

LOST = (redis.ConnectionError, redis.TimeoutError)

COMPARE_AND_DELETE = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end
"""

# A token bucket, in the form that limiters have.
BUCKET = """
local bucket = cjson.decode(redis.call('GET', KEYS[1]) or '{"left":' .. ARGV[1] .. '}')
if bucket.left < 1 then return {0, bucket.left} end
bucket.left = bucket.left - 1
redis.call('SET', KEYS[1], cjson.encode(bucket), 'PX', ARGV[2])
return {1, bucket.left}
"""


def epochs(cluster):
    """The configurations of the lists: another one if a process was replaced."""
    return [entry["epoch"] for entry in cluster.status()["lists"]]


def all_have_begun(cluster):
    """Positions that begin empty count as live, but a list's reason names them until all its nodes have confirmed."""
    return not any(entry["reason"] for entry in cluster.status()["lists"])


def run_all(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("node", [0, 2, 5])
def test_a_script_runs_from_any_node_on_any_key(cluster, node):
    client = cluster.client(node)
    compare = client.register_script(COMPARE_AND_DELETE)
    for n in range(40):
        key = f"script:{node}:{n}"
        client.set(key, "mine")
        assert compare(keys=[key], args=["other"]) == 0
        assert client.get(key) == "mine"
        assert compare(keys=[key], args=["mine"]) == 1
        assert client.get(key) is None
    # A script that names its keys only when it runs.
    set_and_get = "redis.call('set', ARGV[1], ARGV[2]) return redis.call('get', ARGV[1])"
    for n in range(40):
        assert client.eval(set_and_get, 0, f"undeclared:{node}:{n}", n) == str(n)
    with pytest.raises(redis.ResponseError, match="same slot"):
        client.eval("redis.call('set', 'a', 1) return redis.call('set', 'b', 1)", 0)


def test_a_loaded_script_is_known_at_all_nodes(cluster):
    clients = [cluster.client(node) for node in range(6)]
    sha = clients[1].script_load("return {KEYS[1], ARGV[1]}")
    # SCRIPT LOAD and FLUSH wait at most 0.2 s for a node that does not answer.
    until(lambda: all(client.script_exists(sha)[0] for client in clients), "the script at all nodes")
    for n, client in enumerate(clients):
        assert client.evalsha(sha, 1, f"loaded:{n}", n) == [f"loaded:{n}", str(n)]
    assert clients[4].script_flush()
    until(lambda: not any(client.script_exists(sha)[0] for client in clients), "the script at no node")
    for client in clients:
        with pytest.raises(redis.exceptions.NoScriptError):
            client.evalsha(sha, 1, "loaded", 0)


def test_a_cluster_client_runs_scripts(cluster):
    nodes = [ClusterNode("127.0.0.1", cluster.port + 1_000)]
    client = RedisCluster(startup_nodes=nodes, decode_responses=True)
    for n in range(40):
        key = f"{{cluster:script:{n}}}"
        assert client.eval("return redis.call('incrby', KEYS[1], ARGV[1])", 1, key, 5) == 5
        assert client.eval("return {redis.call('mget', KEYS[1], KEYS[2])[1], #ARGV}", 2, key, key + "x") == ["5", 0]
    client.close()


def test_locks_of_redis_py_never_have_two_holders(cluster):
    holders, most, done = [0], [0], [0]

    def hold(node):
        client = cluster.client(node)
        for _ in range(6):
            with client.lock("lock:shared", timeout=20, sleep=0.005, blocking_timeout=TIMEOUT_S):
                holders[0] += 1
                most[0] = max(most[0], holders[0])
                time.sleep(0.001)
                holders[0] -= 1
                done[0] += 1

    run_all([threading.Thread(target=hold, args=(node % 6,)) for node in range(8)])
    assert (most[0], done[0]) == (1, 48)
    lock = cluster.client(1).lock("lock:one", timeout=20)
    assert lock.acquire(blocking=False)
    assert not cluster.client(2).lock("lock:one", timeout=20).acquire(blocking=False)
    assert lock.extend(10) and lock.reacquire()
    lock.release()
    with pytest.raises(redis.exceptions.LockError):
        lock.release()


def test_a_bucket_gives_no_more_than_it_has_while_nodes_are_killed(start_cluster):
    cluster = start_cluster(nodes=8)
    taken, uncertain = [0], [0]

    def take(node):
        client = cluster.client(node)
        misses = 0
        while misses < 50:
            try:
                is_taken, _ = client.eval(BUCKET, 1, "bucket", 500, 600_000)
            except LOST:
                uncertain[0] += 1
                client = cluster.client(node)
                continue
            except redis.ResponseError as error:
                assert is_refused(error) or "UNCERTAIN" in str(error), error
                uncertain[0] += str(error).startswith("UNCERTAIN")
                time.sleep(0.01)
                continue
            if is_taken:
                taken[0] += 1
            else:
                misses += 1

    threads = [threading.Thread(target=take, args=(node,)) for node in (0, 1)]
    for thread in threads:
        thread.start()
    until(lambda: taken[0] > 50 or not threads[0].is_alive(), "50 taken")
    cluster.kill(4)
    cluster.kill(5)
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    assert 500 - uncertain[0] <= taken[0] <= 500


def test_scripts_in_transactions_and_transactions_like_scripts(cluster):
    client = cluster.client(3)
    pipe = client.pipeline()
    for n in range(20):
        pipe.eval("redis.call('set', KEYS[1], ARGV[1]) return redis.call('append', KEYS[1], '!')", 1, f"pipe:{n}", n)
        pipe.get(f"pipe:{n}")
    replies = pipe.execute()
    assert replies[1::2] == [f"{n}!" for n in range(20)]
    # A script that ends for its work undoes its transaction.
    pipe = client.pipeline()
    pipe.set("{undone}a", 1).eval("redis.call('set', KEYS[1], 2) while true do end", 1, "{undone}b")
    with pytest.raises(redis.ResponseError, match="more work"):
        pipe.execute()
    assert client.mget("{undone}a", "{undone}b") == [None, None]


def test_an_error_keeps_what_was_written_before_it_as_in_redis(cluster):
    client = cluster.client(0)
    with pytest.raises(redis.ResponseError, match="mine script: [0-9a-f]{40}, on @user_script:1."):
        client.eval("redis.call('set', KEYS[1], 'kept') error('mine')", 1, "script:kept")
    assert client.get("script:kept") == "kept"


def test_large_values_go_through_scripts(cluster):
    client = cluster.client(1)
    for n, length in enumerate((100_000, 1_500_000, 4_000_000)):
        key = f"script:large:{n}"
        assert client.eval("return redis.call('set', KEYS[1], ARGV[1])", 1, key, "x" * length) == "OK"
        assert client.eval("return #redis.call('get', KEYS[1])", 1, key) == length
        assert client.strlen(key) == length
    with pytest.raises(redis.ResponseError, match="16 MiB"):
        client.eval("return #redis.call('get', KEYS[1]) + #string.rep('x', 20000000)", 1, "script:large:0")


BAD = {
    "endless": "while true do end",
    "endless under pcall": "while true do pcall(function() while true do end end) end",
    "endless coroutines": "while true do coroutine.wrap(function() while true do end end)() end",
    "recursive": "local function f() return f() + 1 end return f()",
    "endless tail calls": "local function f() return f() end return f()",
    "a pattern that explodes": "return string.find(('a'):rep(30), ('a?'):rep(30) .. ('a'):rep(30))",
    "long joins": "local s = ('x'):rep(4000000) local n = 0 while true do n = n + #(s .. 'y') end",
    "the same long string": "local s = ('x'):rep(2000000) while true do local t = s .. s end",
    "a table without end": "local t = {} while true do t[#t + 1] = {} end",
    "a long sort": "local t = {} for i = 1, 1e6 do t[i] = -i end table.sort(t) while true do table.sort(t) end",
    "many writes": "for i = 1, 1e9 do redis.call('set', KEYS[1], i) end",
    "many reads": "while true do redis.pcall('get', KEYS[1]) end",
    "long source": "return loadstring(('local x = 1 '):rep(20000))",
    "many sources": "while true do loadstring(('x = 1 '):rep(5000)) end",
    "json": "local t = {} for i = 1, 200 do t = {t} end while true do cjson.decode(cjson.encode(t)) end",
    "unpack": "local t = {} for i = 1, 7600 do t[i] = i end while true do redis.pcall('ping', unpack(t)) end",
}


@pytest.mark.measures_time
def test_bad_scripts_end_and_nobody_waits_for_them(cluster):
    """Nothing that a script does stops a node for longer than a command may: no owner is replaced."""
    # A list's first configurations confirm that its positions have begun.
    until(lambda: all_have_begun(cluster), "all positions to have begun")
    client, other = cluster.client(0), cluster.client(0)
    before = epochs(cluster)
    for name, source in BAD.items():
        client.set("script:bad", "before")
        began = time.monotonic()
        try:
            client.eval("redis.call('set', KEYS[1], 'during') " + source, 1, "script:bad")
        except redis.ResponseError as error:
            if "Nothing was done" in str(error):
                assert client.get("script:bad") == "before", name
        assert time.monotonic() - began < 5, name
        assert other.ping()
    assert epochs(cluster) == before


@pytest.mark.measures_time
def test_many_bad_scripts_at_once_leave_other_clients_served(cluster):
    ended, slowest = threading.Event(), [0.0]

    def ask():
        client = cluster.client(0)
        while not ended.is_set():
            began = time.monotonic()
            client.set("script:beside", "x")
            slowest[0] = max(slowest[0], time.monotonic() - began)

    def misbehave(source):
        client = cluster.client(1)
        for n in range(3):
            with pytest.raises(redis.ResponseError):
                client.eval(source, 1, f"script:many:{n}")

    asking = threading.Thread(target=ask)
    asking.start()
    run_all([threading.Thread(target=misbehave, args=(BAD[name],)) for name in list(BAD)[:8] if name != "recursive"])
    ended.set()
    asking.join(TIMEOUT_S)
    assert not asking.is_alive()
    assert slowest[0] < 4
