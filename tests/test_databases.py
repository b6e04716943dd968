"""Databases: the same names in several of them, on both ports, through kills, moves of slots and snapshots."""

import subprocess

import pytest
import redis

from conftest import BINARY, pipelined, until
from test_slots import move
from test_snapshot import done, start_valkey  # noqa: F401 (a fixture)

DATABASES = (0, 1, 2, 15)


def fill(cluster, rng, count):
    """The same names in all databases. Returns the contents of each."""
    filled = {}
    for database in DATABASES:
        values = {f"key:{n}": f"{n} in {database} " * rng.randrange(1, 20) for n in range(count) if n % (database + 2)}
        # Some are long enough for parts of their own.
        values |= {f"large:{n}": f"{n}/{database} " * 20_000 for n in range(3)}
        client = cluster.client(rng.randrange(cluster.nodes), db=database)
        assert all(
            pipelined(client, lambda pipe: [pipe.set(key, value, ex=3600 if key.endswith("7") else None) for key, value in values.items()])
        )
        filled[database] = values
    return filled


def assert_holds(cluster, filled, node=0):
    """Each database has exactly these keys."""
    for database in range(16):
        values = filled.get(database, {})
        client = cluster.client(node, db=database)
        keys = list(values)
        found = client.mget(keys) if keys else []
        wrong = [key for key, value in zip(keys, found) if value != values[key]]
        assert not wrong, f"database {database}: {wrong[:5]}"
        assert set(client.scan_iter(count=1000)) == set(keys), f"database {database}"
        timed = [key for key in keys if key.endswith("7")]
        pipe = client.pipeline(transaction=False)
        for key in timed:
            pipe.ttl(key)
        assert all(0 < left <= 3600 for left in pipe.execute())

        def is_counted(client=client, count=len(keys)):
            try:
                return client.dbsize() == count
            except redis.RedisError:
                # After a takeover it is refused until all keys are counted.
                return False

        until(is_counted, f"{len(keys)} keys in database {database}")


def test_the_number_in_an_address_chooses_a_database(start_cluster):
    cluster = start_cluster(nodes=3, scheme="2+1")
    clients = [redis.Redis.from_url(f"redis://127.0.0.1:{cluster.port + n % 3}/{n}", decode_responses=True) for n in range(16)]
    for n, client in enumerate(clients):
        assert client.set("name", n)
    assert [client.get("name") for client in clients] == [str(n) for n in range(16)]
    assert [client.dbsize() for client in clients] == [1] * 16
    assert clients[5].client_info()["db"] == 5
    with pytest.raises(redis.ResponseError, match="DB index is out of range"):
        redis.Redis(port=cluster.port, db=16).ping()
    # redis-py's own commands for it.
    assert clients[3].move("name", 4) == 0 and clients[3].rename("name", "{name}other") and clients[3].move("{name}other", 4) == 1
    assert clients[4].get("{name}other") == "3" and clients[4].copy("{name}other", "{name}again", destination_db=9) is True
    assert sorted(clients[9].keys()) == ["name", "{name}again"]
    expected = {f"db{n}": {4: 2, 9: 2}.get(n, 1) for n in range(16) if n != 3}

    def counted():
        keyspace = clients[0].info("keyspace")
        return {name: of["keys"] for name, of in keyspace.items() if name.startswith("db")}

    # INFO leaves out a node that does not answer within 0.2 s.
    until(lambda: counted() == expected, lambda: f"the keys of all nodes: {counted()}")
    assert clients[4].flushdb() and clients[4].dbsize() == 0
    assert clients[9].dbsize() == 2 and clients[0].get("name") == "0"
    # Transactions, WATCH and scripts are about the client's database.
    with clients[6].pipeline() as pipe:
        pipe.watch("name")
        clients[7].set("name", "of another database")
        pipe.multi()
        pipe.incr("name")
        assert pipe.execute() == [7]
    assert clients[6].eval("return redis.call('incr', KEYS[1])", 1, "name") == 8
    assert clients[0].flushall() and [client.dbsize() for client in clients] == [0] * 16


def test_the_cluster_port_has_the_same_databases(start_cluster):
    cluster = start_cluster(nodes=3, scheme="2+1")
    for n in range(30):
        for database in (0, 7):
            written = 0
            for node in range(3):
                client = redis.Redis(port=cluster.port + 1000 + node, db=database, decode_responses=True)
                try:
                    written += bool(client.set(f"key:{n}", f"{n} in {database}"))
                except redis.ResponseError as error:
                    assert "MOVED" in str(error) or isinstance(error, redis.exceptions.MovedError), error
                client.close()
            assert written == 1
    for database in (0, 7):
        client = cluster.client(db=database)
        assert client.mget([f"key:{n}" for n in range(30)]) == [f"{n} in {database}" for n in range(30)]
        sizes = [redis.Redis(port=cluster.port + 1000 + node, db=database).dbsize() for node in range(3)]
        assert sum(sizes) == 30


def test_two_nodes_die_twice_and_no_database_loses_a_key_or_gets_one_of_another(start_cluster, rng):
    cluster = start_cluster(nodes=6)
    filled = fill(cluster, rng, 2_000)
    for _ in range(2):
        dead = cluster.kill(*rng.sample(range(6), 2))
        cluster.until_replaced(dead)
        for database, values in filled.items():
            key = rng.choice(list(values))
            values[key] = f"changed in {database}"
            client = cluster.client(rng.randrange(6), db=database)
            assert client.set(key, values[key], keepttl=True)
        assert_holds(cluster, filled, rng.randrange(6))


def test_slots_move_with_the_keys_of_all_databases(start_cluster, rng):
    cluster = start_cluster(nodes=6)
    filled = fill(cluster, rng, 2_000)
    for to in ("0/3", "2/1"):
        moved = move(cluster, "0-2000", "--to", to)
        assert moved.returncode == 0, moved.stderr
        assert_holds(cluster, filled, rng.randrange(6))


def test_a_snapshot_has_all_databases_also_for_a_valkey(start_cluster, start_valkey, tmp_path, rng):  # noqa: F811
    cluster = start_cluster(nodes=4, scheme="2+1")
    filled = fill(cluster, rng, 500)
    file = tmp_path / "dump.rdb"
    total = sum(map(len, filled.values()))
    assert done("snapshot", file, cluster.port).startswith(f"{total} keys, ")
    cluster.stop()
    valkey = start_valkey(tmp_path)
    for database, values in filled.items():
        there = redis.Redis(port=valkey.connection_pool.connection_kwargs["port"], db=database, decode_responses=True)
        assert there.mget(list(values)) == list(values.values()) and there.dbsize() == len(values)
    valkey.save()
    fresh = start_cluster(nodes=3, scheme="1+1")
    fresh.client(db=1).set("key:1", "is overwritten")
    assert done("restore", file, fresh.port).startswith(f"{total} keys, ")
    assert_holds(fresh, filled)


def test_keys_that_lie_in_one_slot_are_used_together_through_moves_and_two_kills(start_cluster, rng):
    cluster = start_cluster(nodes=6, more=("--one-slot", "db:1,prefix:bull:"))
    keys = [f"key:{n}" for n in range(200)]
    client = cluster.client(0, db=1)
    slot = client.execute_command("CLUSTER", "KEYSLOT", keys[0])
    assert {client.execute_command("CLUSTER", "KEYSLOT", key) for key in keys} == {slot}
    assert client.msetnx({key: 100 for key in keys}) and not client.msetnx({key: 0 for key in [*keys[:3], "new"]})
    # The same names elsewhere lie in their own slots.
    others = cluster.client(1)
    assert all(pipelined(others, lambda pipe: [pipe.set(key, "other") for key in keys]))
    transfer = client.register_script("redis.call('DECRBY', KEYS[1], ARGV[1]) return redis.call('INCRBY', KEYS[2], ARGV[1])")

    def transfers(node):
        moving = cluster.client(node, db=1)
        for _ in range(50):
            one, other = rng.sample(keys, 2)
            transfer(keys=[one, other], args=[rng.randrange(5)], client=moving)

            def swap(pipe, one=one, other=other):
                first, second = pipe.mget(one, other)
                pipe.multi()
                pipe.mset({one: second, other: first})

            moving.transaction(swap, one, other)

    def is_whole(node):
        values = cluster.client(node, db=1).mget(keys)
        return sum(map(int, values)) == 100 * len(keys)

    transfers(2)
    for to in ("3/1", "0/2"):
        moved = move(cluster, f"{slot}-{slot}", "--to", to)
        assert moved.returncode == 0, moved.stderr
        transfers(rng.randrange(6))
        assert is_whole(rng.randrange(6))
    cluster.until_replaced(cluster.kill(*rng.sample(range(6), 2)))
    assert all(is_whole(node) for node in range(6))
    transfers(4)
    assert is_whole(1) and others.mget(keys) == ["other"] * len(keys)
    assert client.move(keys[0], 0) == 0 and client.move(keys[0], 7) == 1
    assert cluster.client(3, db=7).exists(keys[0]) and not client.exists(keys[0])
    # A client of Redis Cluster is sent to the owner of the rule's slot.
    strict = redis.RedisCluster(host="127.0.0.1", port=cluster.port + 1_000, decode_responses=True)
    assert all(strict.set(f"bull:{n}", n) for n in range(20))
    assert others.msetnx({f"bull:{n}": 0 for n in range(20, 30)}) and others.delete(*(f"bull:{n}" for n in range(30))) == 30


def test_rules_that_are_none_are_refused_with_what_they_can_be(tmp_path):
    for rules in ("db:16", "prefix:", "db:1,db:1", "1"):
        refused = subprocess.run([BINARY, "dev", "--one-slot", rules, "--dir", str(tmp_path)], capture_output=True, text=True, check=False)
        assert refused.returncode != 0 and "one-slot" in refused.stderr, refused.stderr
        assert "db:N" in refused.stderr or "twice" in refused.stderr, refused.stderr
