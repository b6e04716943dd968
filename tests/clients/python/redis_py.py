"""redis-py: plain, cluster-aware and asyncio clients, its Lock, and what it does without CLIENT TRACKING."""

import asyncio
from importlib.metadata import version

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel

from trial import BASE, NODES, TIMEOUT_S, VICTIM, Trial, equal, key, port, until

trial = Trial("redis-py", version("redis"))


def plain(node=0, **options):
    return redis.Redis(port=port("any-key", node), decode_responses=True, **options)


def cluster(**options):
    nodes = [ClusterNode("127.0.0.1", port("cluster", node)) for node in range(NODES)]
    return RedisCluster(startup_nodes=nodes, decode_responses=True, **options)


def sentinels(**options):
    """Of these nodes, the client takes the first that answers. Here that is the one that dies."""
    # By default each of them is asked four times, with pauses.
    once = Retry(NoBackoff(), 0)
    nodes = [("127.0.0.1", port("any-key", (VICTIM + n) % NODES)) for n in range(NODES)]
    return Sentinel(nodes, sentinel_kwargs={"socket_timeout": 0.5, "retry": once}).master_for("mymaster", decode_responses=True, **options)


def strings(r):
    assert r.set(key("a"), "1", nx=True) and r.set(key("a"), "2", nx=True) is None
    equal(r.set(key("a"), "2", get=True), "1")
    equal(r.append(key("a"), "xy"), 3)
    equal(r.mget(key("{t}a"), key("{t}b")), [None, None])
    assert r.mset({key("{t}a"): "1", key("{t}b"): "2"})
    equal(r.mget(key("{t}a"), key("{t}b")), ["1", "2"])
    equal(r.getrange(key("a"), 1, 2), "xy")
    equal(r.getdel(key("a")), "2xy")
    large = "x" * 300_000
    assert r.set(key("large"), large)
    equal(r.get(key("large")), large)


def expiry(r):
    assert r.set(key("e"), "v", px=150)
    assert 0 < r.pttl(key("e")) <= 150
    until(lambda: r.get(key("e")) is None)
    assert r.set(key("e"), "v") and r.expire(key("e"), 100)
    assert 90 < r.ttl(key("e")) <= 100 and r.persist(key("e"))
    equal(r.ttl(key("e")), -1)


def counters(r):
    equal([r.incr(key("n")), r.incrby(key("n"), 9), r.decr(key("n"))], [1, 10, 9])
    equal(r.incrbyfloat(key("f"), 0.5), 0.5)


def bits(r):
    equal(r.setbit(key("b"), 7, 1), 0)
    equal([r.getbit(key("b"), 7), r.bitcount(key("b"))], [1, 1])


def pipeline(r):
    pipe = r.pipeline(transaction=False)
    for n in range(200):
        pipe.set(key(f"p{n}"), n)
    assert all(pipe.execute())
    for n in range(200):
        pipe.get(key(f"p{n}"))
    equal(pipe.execute(), [str(n) for n in range(200)])


def multi(r):
    with r.pipeline(transaction=True) as pipe:
        pipe.set(key("{m}a"), 1)
        pipe.incr(key("{m}a"))
        pipe.get(key("{m}a"))
        equal(pipe.execute()[1:], [2, "2"])


def watch(r):
    counter = key("{w}n")
    r.set(counter, 5)
    with r.pipeline(transaction=True) as pipe:
        pipe.watch(counter)
        value = int(pipe.get(counter))
        pipe.multi()
        pipe.set(counter, value + 1)
        pipe.execute()
    equal(r.get(counter), "6")
    with r.pipeline(transaction=True) as pipe:
        pipe.watch(counter)
        r.set(counter, 100)
        pipe.multi()
        pipe.set(counter, 7)
        try:
            pipe.execute()
            raise AssertionError("EXEC did not see the other write")
        except redis.WatchError:
            equal(r.get(counter), "100")


def script(r):
    release = r.register_script(f"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0 -- {key('')}")
    r.set(key("s"), "mine")
    equal(release(keys=[key("s")], args=["other"]), 0)
    equal(release(keys=[key("s")], args=["mine"]), 1)
    r.script_flush()
    r.set(key("s"), "mine")
    equal(release(keys=[key("s")], args=["mine"]), 1)


def scan(r):
    for n in range(300):
        r.set(key(f"scan{n}"), n)
    equal(set(r.scan_iter(match=key("scan*"), count=50)), {key(f"scan{n}") for n in range(300)})


def lock(r):
    with r.lock(key("lock"), timeout=10) as held:
        assert not r.lock(key("lock"), timeout=10, blocking=False).acquire()
        assert held.extend(5) and held.owned()
    assert r.get(key("lock")) is None
    stolen = r.lock(key("lock2"), timeout=10)
    assert stolen.acquire()
    r.set(key("lock2"), "other")
    try:
        stolen.release()
        raise AssertionError("a lock of another was released")
    except redis.exceptions.LockNotOwnedError:
        pass


def asyncio_client(kind):
    async def run():
        if kind == "cluster":
            r = redis.asyncio.RedisCluster(host="127.0.0.1", port=port("cluster"), decode_responses=True)
        else:
            r = redis.asyncio.Redis(port=port("any-key"), decode_responses=True)
        assert await r.set(key("async"), "1")
        equal(await asyncio.gather(*(r.incr(key(f"async{n % 5}")) for n in range(50))) and await r.get(key("async")), "1")
        pipe = r.pipeline(transaction=False) if kind != "cluster" else r.pipeline()
        for n in range(20):
            pipe.set(key(f"async{n}"), n)
        assert all(await pipe.execute())
        lock_ = r.lock(key("async-lock"), timeout=5)
        assert await lock_.acquire()
        await lock_.release()
        await r.aclose()

    asyncio.run(run())


def resp3(connect):
    with connect(protocol=3) as r:
        assert r.set(key("3"), "x")
        equal(r.get(key("3")), "x")
        equal(r.mget(key("{3}"), key("{3}no")), [None, None])


def client_cache(connect):
    from redis.cache import CacheConfig

    with connect(protocol=3, cache_config=CacheConfig()) as r:
        r.set(key("cached"), "1")
        equal(r.get(key("cached")), "1")
        connect().set(key("cached"), "2")
        until(lambda: r.get(key("cached")) == "2")


def messages(r):
    with r.pubsub() as listener:
        listener.subscribe(key("channel"))
        until(lambda: (listener.get_message(timeout=1) or {}).get("type") == "subscribe")
        r.publish(key("channel"), "hello")
        until(lambda: (listener.get_message(timeout=1) or {}).get("data") == "hello")


def database(_):
    with redis.Redis.from_url(f"redis://127.0.0.1:{BASE}/1") as r:
        assert r.set(key("db"), 1)


def hashes(r):
    equal(r.hset(key("h"), "field", "1"), 1)
    equal(r.hget(key("h"), "field"), "1")


def sentinel(_):
    """A plain client that knows several nodes."""
    master = sentinels()
    assert master.set(key("sentinel"), "1")
    equal(master.get(key("sentinel")), "1")


SAME = [("strings", strings), ("expiry", expiry), ("counters", counters), ("bits", bits), ("pipelines", pipeline), ("MULTI", multi),
        ("WATCH", watch), ("scripts", script), ("SCAN", scan), ("Lock", lock)]  # fmt: skip
for kind, connect in (("any-key", plain), ("cluster", cluster)):
    with connect() as client:
        for what, do in SAME:
            trial.check(kind, what, lambda do=do, client=client: do(client))
        trial.check(kind, "asyncio", lambda kind=kind: asyncio_client(kind))
        trial.check(kind, "RESP3", lambda connect=connect: resp3(connect))
        trial.check(kind, "client-side cache", lambda connect=connect: client_cache(connect))
        trial.check(kind, "Pub/Sub", lambda client=client: messages(client))
        trial.check(kind, "hashes", lambda client=client: hashes(client))
trial.check("any-key", "database 1", lambda: database(None))
trial.check("any-key", "Sentinel", lambda: sentinel(None))


def of(client):
    return lambda: (client.set, client.get)


trial.ride({
    "any-key port, another node dies": of(plain(0)),
    "any-key port, its own node dies": of(plain(VICTIM)),
    "any-key ports as Sentinels, its own node dies; `socket_timeout=1`": of(sentinels(socket_timeout=1)),
    "cluster port": of(cluster()),
    "cluster port; `socket_timeout=1`": of(cluster(socket_timeout=1)),
})
