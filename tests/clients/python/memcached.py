"""pymemcache and pylibmc, with one server and with all."""

import threading
from importlib.metadata import version

import pylibmc
from pymemcache.client.base import PooledClient
from pymemcache.client.hash import HashClient

from trial import NODES, VICTIM, Trial, equal, key, port, until

ALL = [("127.0.0.1", port("memcached", node)) for node in range(NODES)]


def everything(connect):
    def run():
        c = connect()
        assert c.set(key("a"), b"1") and not c.add(key("a"), b"2") and c.replace(key("a"), b"3")
        assert c.append(key("a"), b"y") and c.prepend(key("a"), b"x")
        equal(c.get(key("a")), b"x3y")
        value, token = c.gets(key("a"))
        assert c.cas(key("a"), b"new", token) and not c.cas(key("a"), b"newer", token)
        equal((value, c.get(key("a"))), (b"x3y", b"new"))
        assert c.set(key("n"), b"5")
        equal([c.incr(key("n"), 7), c.decr(key("n"), 20)], [12, 0])
        equal(c.set_many({key(f"m{n}"): b"%d" % n for n in range(50)}), [])
        equal(c.get_many([key(f"m{n}") for n in range(60)]), {key(f"m{n}"): b"%d" % n for n in range(50)})
        assert c.touch(key("a"), 1) and c.delete(key("n")) and not c.delete(key("n"), noreply=False)
        until(lambda: c.get(key("a")) is None)
        assert c.set(key("large"), b"x" * 1_000_000)
        equal(len(c.get(key("large"))), 1_000_000)
        c.close()

    return run


def of_pylibmc(servers):
    def run():
        c = pylibmc.Client(servers, binary=False, behaviors={"cas": True, "ketama": True})
        assert c.set(key("a"), {"b": 1}) and not c.add(key("a"), 2)
        equal(c.get(key("a")), {"b": 1})
        _, token = c.gets(key("a"))
        assert c.cas(key("a"), 2, token)
        try:
            assert not c.cas(key("a"), 3, token)
        except pylibmc.NotFound:
            pass
        c.set(key("n"), 5)
        equal([c.incr(key("n"), 7), c.decr(key("n"), 2)], [12, 10])
        equal(c.set_multi({key(f"m{n}"): n for n in range(50)}), [])
        equal(c.get_multi([key(f"m{n}") for n in range(60)]), {key(f"m{n}"): n for n in range(50)})
        assert c.touch(key("a"), 1) and c.delete(key("n"))
        until(lambda: c.get(key("a")) is None)
        pool = pylibmc.ThreadMappedPool(c)
        threads = [threading.Thread(target=lambda: [pool.reserve().__enter__().incr(key("t")) for _ in range(20)]) for _ in range(4)]
        c.set(key("t"), 0)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        equal(c.get(key("t")), 80)

    return run


def pooled(node=0, **options):
    return PooledClient(("127.0.0.1", port("memcached", node)), default_noreply=False, **options)


def hashed(**options):
    return HashClient(ALL, default_noreply=False, **options)


pymemcache = Trial("pymemcache", version("pymemcache"))
pymemcache.check("memcached", "PooledClient: every command", everything(pooled))
pymemcache.check("memcached", "HashClient over all nodes: every command", everything(hashed))
libmc = Trial("pylibmc", version("pylibmc"))
libmc.check("memcached", "one node: every command, threads", of_pylibmc([f"127.0.0.1:{port('memcached')}"]))
libmc.check("memcached", "all nodes: every command, threads", of_pylibmc([f"127.0.0.1:{at}" for _, at in ALL]))


def of(client):
    """A server that is away is an error in one client, and in another a False or a miss."""

    def put(name, value):
        assert client.set(name, value.encode()), "not set"

    def get(name):
        value = client.get(name)
        assert value is not None, "a miss"
        return value.decode()

    return lambda: (put, get)


pymemcache.ride({
    "memcached port, another node dies": of(pooled()),
    "memcached port, its own node dies": of(pooled(VICTIM)),
    "memcached port, its own node dies; `timeout=1`": of(pooled(VICTIM, timeout=1, connect_timeout=1)),
    "memcached ports of all nodes; `timeout=1`": of(hashed(timeout=1, connect_timeout=1, retry_attempts=1)),
})
