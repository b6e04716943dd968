"""dogpile.cache: regions over Redis, with and without its lock, and over memcached."""

from importlib.metadata import version

from dogpile.cache import make_region
from dogpile.cache.api import NO_VALUE

from trial import Trial, equal, key, port

trial = Trial("dogpile.cache", version("dogpile.cache"))
NODE = {"host": "127.0.0.1", "port": port("any-key", 3)}


def region(backend, multi=True, **arguments):
    def run():
        cache = make_region(key_mangler=lambda name: key(name)).configure(f"dogpile.cache.{backend}", expiration_time=60, arguments=arguments)
        cache.set("a", {"b": 1})
        equal([cache.get("a"), cache.get("no")], [{"b": 1}, NO_VALUE])
        if multi:
            cache.set_multi({"x": 1, "y": 2})
            equal(cache.get_multi(["x", "y", "z"]), [1, 2, NO_VALUE])
            cache.delete_multi(["x", "y"])
            equal(cache.get("x"), NO_VALUE)
        made = []

        @cache.cache_on_arguments()
        def double(n):
            made.append(n)
            return 2 * n

        equal([double(2), double(2), made], [4, 4, [2]])
        double.invalidate(2)
        equal([double(2), made], [4, [2, 2]])

    return run


trial.check("any-key", "redis", region("redis", **NODE, redis_expiration_time=100))
trial.check("any-key", "redis with distributed_lock", region("redis", **NODE, distributed_lock=True, lock_timeout=5, thread_local_lock=False))
CLUSTER = f"redis://127.0.0.1:{port('cluster')}"
trial.check("cluster", "redis_cluster", region("redis_cluster", multi=False, url=CLUSTER))
trial.check("cluster", "redis_cluster: set_multi", region("redis_cluster", url=CLUSTER))
for backend in ("pymemcache", "pylibmc"):
    trial.check("memcached", backend, region(backend, url=[f"127.0.0.1:{port('memcached')}"], distributed_lock=True))
