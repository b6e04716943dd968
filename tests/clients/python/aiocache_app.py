"""aiocache: its cache, decorator and locks over Redis."""

import asyncio
from importlib.metadata import version

from aiocache import Cache, cached
from aiocache.lock import OptimisticLock, OptimisticLockError, RedLock
from aiocache.serializers import JsonSerializer

from trial import Trial, equal, key, port

trial = Trial("aiocache", version("aiocache"))
NODE = {"endpoint": "127.0.0.1", "port": port("any-key", 4)}


async def use():
    cache = Cache(Cache.REDIS, **NODE, namespace=key(""), serializer=JsonSerializer())
    assert await cache.set("a", {"b": 1}, ttl=100)
    equal(await cache.get("a"), {"b": 1})
    assert await cache.multi_set([["x", 1], ["y", 2]], ttl=100)
    equal(await cache.multi_get(["x", "y", "z"]), [1, 2, None])
    equal([await cache.increment("n", 5), await cache.exists("n"), await cache.delete("n")], [5, True, 1])
    try:
        await cache.add("a", 1)
        raise AssertionError("a key was added twice")
    except ValueError:
        pass
    assert await cache.expire("a", 50)
    made = []

    @cached(cache=Cache.REDIS, **NODE, namespace=key("decorator"), serializer=JsonSerializer(), ttl=100)
    async def slow(n):
        made.append(n)
        return n

    equal([await slow(1), await slow(1), made], [1, 1, [1]])
    assert await cache.clear()
    equal(await cache.get("a"), None)
    await cache.close()


async def locks():
    cache = Cache(Cache.REDIS, **NODE, namespace=key(""))
    order = []

    async def wait():
        async with RedLock(cache, "work", lease=5):
            order.append("second")

    # The others come when the first has the lock: RedLock lets them pass if their refusal comes before the first one's OK, with Redis too.
    async with RedLock(cache, "work", lease=5):
        others = asyncio.gather(wait(), wait())
        await cache.get("anything")
        order.append("first")
    await others
    equal(order, ["first", "second", "second"])
    await cache.set("o", "1")
    async with OptimisticLock(cache, "o") as lock:
        await lock.cas("2")
    try:
        async with OptimisticLock(cache, "o") as lock:
            await cache.set("o", "3")
            await lock.cas("4")
        raise AssertionError("cas did not see the other write")
    except OptimisticLockError:
        pass
    await cache.close()


trial.check("any-key", "get, set, many, increment, add, clear, @cached", lambda: asyncio.run(use()))
trial.check("any-key", "RedLock, OptimisticLock", lambda: asyncio.run(locks()))
