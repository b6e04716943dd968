"""The port of memcached: stock clients, pipelines, races, a node that dies, and what is no command."""

import random
import socket
import threading
import time

import pylibmc
import pytest
from pymemcache.client.base import Client, PooledClient
from pymemcache.exceptions import MemcacheServerError, MemcacheUnexpectedCloseError

from conftest import TIMEOUT_S, Cluster, until
from test_slots import move

PORT_OFFSET = 2_000


@pytest.fixture(scope="module", name="cluster")
def start_cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("memcached"), nodes=7)
    yield cluster
    cluster.stop()


def client_of(cluster, node=0, **options):
    return Client(("127.0.0.1", cluster.port + PORT_OFFSET + node), timeout=TIMEOUT_S, default_noreply=False, **options)


def exchange(connection, request, end):
    """What comes up to these bytes."""
    connection.sendall(request)
    got = b""
    while not got.endswith(end):
        some = connection.recv(1 << 16)
        assert some, (request[:80], got)
        got += some
    return got


def test_every_command_of_pymemcache_works_at_any_node(cluster):
    one, other = client_of(cluster, 0), client_of(cluster, 5)
    keys = {f"key-{i}": b"x" * (37 * i) for i in range(60)}
    assert one.set_many(keys) == []
    assert other.get_many(list(keys) + ["none"]) == keys
    assert other.gets_many(list(keys)[:3]).keys() == set(list(keys)[:3])
    assert one.add("key-1", b"y") is False and one.add("new", b"y", flags=7) is True
    assert one.replace("none", b"y") is False and one.replace("new", b"z") is True
    assert one.append("new", b"1") and other.prepend("new", b"0") and one.get("new") == b"0z1"
    value, cas = other.gets("new")
    assert value == b"0z1"
    assert one.cas("new", b"a", cas) is True and other.cas("new", b"b", cas) is False and one.cas("none", b"b", cas) is None
    one.set("n", b"10")
    assert (one.incr("n", 5), other.decr("n", 16), one.incr("none", 1)) == (15, 0, None)
    assert one.touch("n", 100) is True and one.touch("none", 100) is False
    assert other.raw_command(b"gat 50 n", end_tokens=b"END\r\n") == b"VALUE n 0 2\r\n0 \r\n"
    assert one.delete("n") is True and one.delete("n") is False and one.get("n") is None
    assert one.delete_many(["key-2", "key-3"]) and other.get("key-2") is None
    assert one.version().startswith(b"1.6.")
    assert one.stats()[b"version"].startswith(b"1.6.")
    other.flush_all()
    assert one.get_many(list(keys)) == {}


def test_other_stock_clients_work(cluster):
    client = pylibmc.Client([f"127.0.0.1:{cluster.port + PORT_OFFSET + node}" for node in range(3)], behaviors={"cas": True})
    things = {f"thing-{i}": {"number": i, "text": "é" * i} for i in range(50)}
    assert client.set_multi(things) == []
    assert client.get_multi(list(things)) == things
    assert client.set("n", 5) and client.incr("n", 3) == 8 and client.get("n") == 8
    value, cas = client.gets("thing-7")
    assert client.cas("thing-7", "new", cas) and not client.cas("thing-7", value, cas) and client.get("thing-7") == "new"
    assert client.delete_multi(list(things))
    pooled = PooledClient(("127.0.0.1", cluster.port + PORT_OFFSET + 4), timeout=TIMEOUT_S)
    pooled.set("a", b"1", noreply=True)
    assert pooled.get("a") == b"1"


def test_redis_and_memcached_see_the_same_keys(cluster):
    redis, client = cluster.client(1), client_of(cluster, 2)
    redis.set("both", "from redis", ex=100)
    assert client.get("both") == b"from redis"
    client.set("both", b"5", expire=50, flags=3)
    assert redis.get("both") == "5" and 0 < redis.ttl("both") <= 50 and redis.incr("both") == 6
    assert client.incr("both", 1) == 7
    client.append("both", b"!")
    assert redis.strlen("both") == 2 and redis.delete("both") == 1 and client.get("both") is None


def test_replies_to_a_pipeline_written_before_any_is_read_come_in_order(cluster):
    rounds = 400
    with cluster.socket(3, PORT_OFFSET) as connection:
        connection.settimeout(TIMEOUT_S)
        request, expected = b"", b""
        for i in range(rounds):
            data = b"%d" % i * (i % 40 + 1)
            request += b"set p%d %d 0 %d\r\n%s\r\nset q%d 0 0 1 noreply\r\nx\r\n" % (i % 50, i, len(data), data, i % 50)
            request += b"get p%d none q%d\r\nincr p%d x\r\ndelete q%d\r\nbogus\r\n" % (i % 50, i % 50, i % 50, i % 50)
            expected += b"STORED\r\nVALUE p%d %d %d\r\n%s\r\nVALUE q%d 0 1\r\nx\r\nEND\r\n" % (i % 50, i, len(data), data, i % 50)
            expected += b"CLIENT_ERROR invalid numeric delta argument\r\nDELETED\r\nERROR\r\n"
        got = exchange(connection, request + b"version\r\n", b"VERSION 1.6.18\r\n")
        assert got == expected + b"VERSION 1.6.18\r\n"


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 300_000, (1 << 20) - 1])
def test_items_of_every_size_come_back(cluster, size):
    data = random.Random(size).randbytes(size)
    one, other = client_of(cluster, 0), client_of(cluster, 4)
    for node in range(4):
        assert one.set(f"size-{size}-{node}", data, flags=9)
        value, cas = other.gets(f"size-{size}-{node}")
        assert value == data
        assert other.cas(f"size-{size}-{node}", data[:-1] + b"!", cas)
        assert one.cas(f"size-{size}-{node}", b"late", cas) is False


def test_too_long_an_item_is_refused_and_takes_the_old_value_with_it(cluster):
    with cluster.socket(0, PORT_OFFSET) as connection:
        connection.settimeout(TIMEOUT_S)
        for i in range(5):
            assert exchange(connection, b"set long%d 0 0 1\r\nx\r\n" % i, b"\r\n") == b"STORED\r\n"
            data = b"y" * (1 << 20) + b"y"
            got = exchange(connection, b"add long%d 0 0 %d\r\n%s\r\n" % (i, len(data), data), b"\r\n")
            assert got == b"SERVER_ERROR object too large for cache\r\n"
            assert exchange(connection, b"get long%d\r\n" % i, b"END\r\n") == b"VALUE long%d 0 1\r\nx\r\nEND\r\n" % i
            got = exchange(connection, b"set long%d 0 0 %d\r\n%s\r\n" % (i, len(data), data), b"\r\n")
            assert got == b"SERVER_ERROR object too large for cache\r\n"
            assert exchange(connection, b"get long%d\r\n" % i, b"END\r\n") == b"END\r\n"


def test_what_is_no_command_ends_nothing_or_only_its_connection(cluster):
    def until_closed(request):
        with cluster.socket(0, PORT_OFFSET) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.sendall(request)
            got = b""
            while some := connection.recv(1 << 16):
                got += some
            return got

    assert until_closed(b"x" * 3000) == b""
    assert until_closed(b"set k 0 0 1 " + b" " * 3000) == b""
    assert until_closed(b"get " + b"k" * ((1 << 20) + 10)) == b""
    binary = until_closed(b"\x80\x00\x00" + bytes(40) + b"\r\nquit\r\n")
    assert binary[:8] == b"\x81\0\0\0\0\0\0\x83" and binary.endswith(b"text or meta protocol")
    assert until_closed(b"\xff\x00\x00" + bytes(40) + b"\r\nquit\r\n") == b"ERROR\r\n"
    assert until_closed(b"*1\r\n$4\r\nPING\r\nquit\r\n") == b"ERROR\r\nERROR\r\nERROR\r\n"
    assert until_closed(b"set k 0 0 2147483648\r\nset k 0 0 -5\r\nset k 0 0 99999999999999999999999\r\nquit\r\n") == (
        3 * b"CLIENT_ERROR bad command line format\r\n"
    )
    # Data that never end hold no more than they have brought, and the client may go.
    with cluster.socket(0, PORT_OFFSET) as connection:
        connection.sendall(b"set k 0 0 1000000\r\nxxxx")
    assert client_of(cluster).get("k") is None
    many = b"get" + b" none" * 20_000 + b"\r\nquit\r\n"
    assert until_closed(many) == b"END\r\n"


def test_of_racing_cas_exactly_one_wins_each_round_even_while_nodes_die(cluster):
    """A counter that several clients raise by gets and cas. Each success raised it by one; an unknown result, by at most
    one."""
    client_of(cluster).set("counter", b"0")
    sure, unsure, ending = [0] * 4, [0] * 4, threading.Event()

    def raise_it(me):
        client = client_of(cluster, me)
        while not ending.is_set():
            try:
                value, cas = client.gets("counter")
                if value is None:
                    continue
                won = client.cas("counter", b"%d" % (int(value) + 1), cas)
                sure[me] += won is True
            except MemcacheServerError as error:
                # The second: a connection that ended behind the command.
                unsure[me] += "UNCERTAIN" in str(error) or isinstance(error, MemcacheUnexpectedCloseError)
            except OSError:
                # The client's own node has died while the command was under way.
                unsure[me] += 1
                client.close()
                time.sleep(0.01)

    threads = [threading.Thread(target=raise_it, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for victims in [(5,), (6, 2)]:
        before = sum(sure)
        until(lambda before=before: sum(sure) > before + 200, "the counter goes on")
        cluster.until_replaced(cluster.kill(*victims))
    before = sum(sure)
    until(lambda: sum(sure) > before + 200, "the counter goes on")
    ending.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    value = int(until(lambda: client_of(cluster).get("counter"), "the counter"))
    assert sum(sure) <= value <= sum(sure) + sum(unsure)


def test_marks_of_items_go_with_slots_and_survive_nodes(cluster, rng):
    with cluster.socket(0, PORT_OFFSET) as connection:
        connection.settimeout(TIMEOUT_S)
        sizes = {f"mark-{n}": rng.choice([0, 5, 500, 100_000] if n < 40 else [5, 50]) for n in range(400)}
        won = set(rng.sample(sorted(sizes), 200))
        for key, size in sizes.items():
            assert exchange(connection, b"ms %b %d F3\r\n%b\r\n" % (key.encode(), size, b"x" * size), b"\r\n") == b"HD\r\n"
            assert exchange(connection, b"md %b I\r\n" % key.encode(), b"\r\n") == b"HD\r\n"
            if key in won:
                assert exchange(connection, b"mg %b\r\n" % key.encode(), b"\r\n") == b"HD X W\r\n"
    moved = move(cluster, "0-6000", "--to", "1/2", asked=1)
    assert moved.returncode == 0, moved.stderr
    cluster.until_replaced(cluster.kill(3, 4))
    with cluster.socket(0, PORT_OFFSET) as connection:
        connection.settimeout(TIMEOUT_S)
        for key, size in sizes.items():
            for marks in [b"Z X" if key in won else b"X W", b"Z X"]:
                line = b"mg %b s f\r\n" % key.encode()
                got = until(lambda line=line: ((got := exchange(connection, line, b"\r\n")).startswith(b"HD") and got), key)
                assert got == b"HD s%d f3 %b\r\n" % (size, marks), key


def test_of_racing_readers_of_a_stale_item_at_most_one_wins_even_while_nodes_die(cluster):
    """Each round an item is marked, and six clients ask for it until each was answered. Without a failure one of them wins."""
    rounds, wins, marked, ending = [0], {}, threading.Barrier(7), threading.Event()

    def read(me):
        while True:
            marked.wait(2 * TIMEOUT_S)
            if ending.is_set():
                return
            node = (0, 1, 4)[me % 3]
            until(lambda node=node: asks(node), "an answer")
            marked.wait(2 * TIMEOUT_S)

    def asks(node):
        try:
            with cluster.socket(node, PORT_OFFSET) as connection:
                connection.settimeout(TIMEOUT_S)
                got = exchange(connection, b"mg raced\r\n", b"\r\n")
        except OSError:
            return False
        if got == b"HD X W\r\n":
            wins.setdefault(rounds[0], []).append(got)
        return got in (b"HD X W\r\n", b"HD Z X\r\n")

    def change(request):
        def done():
            with cluster.socket(0, PORT_OFFSET) as connection:
                connection.settimeout(TIMEOUT_S)
                return exchange(connection, request, b"\r\n") == b"HD\r\n"

        until(done, request)

    threads = [threading.Thread(target=read, args=(me,)) for me in range(6)]
    for thread in threads:
        thread.start()
    change(b"ms raced 1\r\nx\r\n")
    for at in range(60):
        rounds[0] = at
        change(b"md raced I\r\n")
        marked.wait(2 * TIMEOUT_S)
        dead = cluster.kill({20: 2, 40: 6}[at]) if at in (20, 40) else None
        marked.wait(2 * TIMEOUT_S)
        if dead:
            cluster.until_replaced(dead)
    ending.set()
    marked.wait(2 * TIMEOUT_S)
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert all(len(won) == 1 for won in wins.values()), wins
    # A win whose answer was lost with a node is no client's.
    assert len(wins) >= 58, sorted(wins)


def test_the_password_is_given_as_a_set(start_cluster, tmp_path):
    path = tmp_path / "password"
    path.write_text("correct horse\n", encoding="utf-8")
    path.chmod(0o600)
    cluster = start_cluster(nodes=3, scheme="2+1", more=["--password-file", str(path)])
    with cluster.socket(0, PORT_OFFSET) as connection:
        connection.settimeout(TIMEOUT_S)
        for line in [b"get a", b"version", b"flush_all", b"stats", b"bogus"]:
            assert exchange(connection, line + b"\r\n", b"\r\n") == b"CLIENT_ERROR unauthenticated\r\n"
        for proof in [b"default wrong", b"other correct horse", b"default correct horses"]:
            request = b"set any 0 0 %d\r\n%s\r\n" % (len(proof), proof)
            assert exchange(connection, request, b"\r\n") == b"CLIENT_ERROR authentication failure\r\n"
        assert exchange(connection, b"set any 0 0 1\r\nx\r\n", b"\r\n") == b"CLIENT_ERROR bad authentication token format\r\n"
        assert exchange(connection, b"set any 0 0 21\r\ndefault correct horse\r\n", b"\r\n") == b"STORED\r\n"
        assert exchange(connection, b"get any\r\n", b"END\r\n") == b"END\r\n"
        assert exchange(connection, b"set any 0 0 1\r\nx\r\n", b"\r\n") == b"STORED\r\n"
    with cluster.socket(0, PORT_OFFSET) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.sendall(b"x" * 3000)
        assert connection.recv(10) == b""


def test_errors_behind_noreply_are_counted_and_logged(cluster):
    client = client_of(cluster, 1)
    before = int(client.stats()[b"noreply_errors"])
    client.set("text", b"x")
    with cluster.socket(1, PORT_OFFSET) as connection:
        connection.settimeout(TIMEOUT_S)
        got = exchange(connection, b"incr text 1 noreply\r\nincr text x noreply\r\nset text 0 0 1 noreply\r\ny\r\nversion\r\n", b"\r\n")
        assert got == b"VERSION 1.6.18\r\n"
    assert int(client.stats()[b"noreply_errors"]) == before + 2
    log = cluster.directory / "data" / "node-1.log"
    until(lambda: "commands of memcached clients failed" in log.read_text(encoding="utf-8"), "the log tells them")
