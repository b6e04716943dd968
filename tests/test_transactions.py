"""Transactions with a stock client, also while nodes are killed."""

import threading

import pytest
import redis
from redis.cluster import ClusterNode, RedisCluster

from conftest import TIMEOUT_S, is_refused, until

LOST = (redis.ConnectionError, redis.TimeoutError)


def run_all(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("node", [0, 3])
def test_a_default_pipeline_takes_keys_of_all_slots_and_large_values(cluster, node):
    client = cluster.client(node)
    values = {f"pipeline:{node}:{n}": str(n) * 2_000 for n in range(1_000)}
    values |= {f"pipeline:{node}:large:{n}": "x" * (70_000 + n) for n in range(20)}
    pipe = client.pipeline()
    for key, value in values.items():
        pipe.set(key, value)
    assert all(pipe.execute())
    for key in values:
        pipe.get(key)
    pipe.mget(list(values)[:50]).exists(*values).delete(*list(values)[:7]).ping()
    *read, together, there, gone, pong = pipe.execute()
    assert read == list(values.values()) and together == read[:50]
    assert (there, gone, pong) == (1_020, 7, True)


def test_clients_at_all_nodes_count_under_watch(cluster):
    def count(node, failed):
        with cluster.client(node) as client:
            def add(pipe):
                now = int(pipe.get("watch:count") or 0)
                pipe.multi()
                pipe.set("watch:count", now + 1)
            try:
                for _ in range(25):
                    client.transaction(add, "watch:count")
            except Exception as error:  # noqa: BLE001 - shown by the assertion
                failed.append(error)

    failed = []
    run_all([threading.Thread(target=count, args=(node % 6, failed)) for node in range(8)])
    assert not failed
    assert cluster.client(1).get("watch:count") == "200"


def test_a_cluster_client_has_transactions_of_one_slot(cluster):
    nodes = [ClusterNode("127.0.0.1", cluster.port + 1_000)]
    with RedisCluster(startup_nodes=nodes, decode_responses=True, socket_timeout=TIMEOUT_S) as client:
        for n in range(20):
            with client.pipeline(transaction=True) as pipe:
                pipe.set(f"{{tag{n}}}a", n).incrby(f"{{tag{n}}}a", 5).get(f"{{tag{n}}}a")
                assert pipe.execute()[1:] == [n + 5, str(n + 5)]


def test_no_transfer_is_torn_or_lost_while_nodes_are_killed(start_cluster, rng):
    """Money moves between two accounts of a tag: no reader, and no end, sees another sum than there was."""
    cluster = start_cluster()
    tags = [f"{{account{n}}}" for n in range(8)]
    for tag in tags:
        cluster.client(0).mset({f"{tag}a": 1_000, f"{tag}b": 1_000})
    victims = rng.sample(range(6), 2)
    living = [node for node in range(6) if node not in victims]
    over = threading.Event()
    torn, errors, done, unknown = [], [], [], []

    def move(seed):
        random = type(rng)(seed)
        client = None
        while not over.is_set():
            try:
                client = client or cluster.client(living[seed % len(living)])
                tag, amount = random.choice(tags), random.randrange(1, 50)
                if random.random() < 0.5:
                    pipe = client.pipeline()
                    pipe.decrby(f"{tag}a", amount).incrby(f"{tag}b", amount)
                    pipe.execute()
                    done.append(1)
                else:
                    pair = client.pipeline().get(f"{tag}a").get(f"{tag}b").execute()
                    if sum(map(int, pair)) != 2_000:
                        torn.append((tag, pair))
            except LOST:
                client = None
            except redis.ResponseError as error:
                if not is_refused(error) and "UNCERTAIN" not in str(error):
                    errors.append(error)
                unknown.append(1)

    threads = [threading.Thread(target=move, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(done) > 200, "transfers before the loss")
        dead = cluster.kill(*victims)
        cluster.until_replaced(dead)
        before = len(done)
        until(lambda: len(done) > before + 200, "transfers after the loss")
    finally:
        over.set()
        for thread in threads:
            thread.join(TIMEOUT_S)
    assert not torn and not errors
    for tag in tags:
        assert sum(map(int, cluster.client(living[0]).mget(f"{tag}a", f"{tag}b"))) == 2_000
