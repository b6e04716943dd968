"""Django: its own cache backends of Redis and memcached, django-redis, and sessions in each."""

import django
from django.conf import settings
from django.core.cache import caches
from importlib.metadata import version
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from trial import NODES, RUN, VICTIM, Trial, equal, key, port, until

REDIS = f"redis://127.0.0.1:{port('any-key', 1)}"
CORE, PLUS = "django.core.cache.backends", "django_redis.cache.RedisCache"
STORES = {
    "core": {"BACKEND": f"{CORE}.redis.RedisCache", "LOCATION": REDIS},
    # The backend writes to the first, and reads from any.
    "core-several": {"BACKEND": f"{CORE}.redis.RedisCache", "LOCATION": [f"redis://127.0.0.1:{port('any-key', n)}" for n in range(3)]},
    "plus": {"BACKEND": PLUS, "LOCATION": REDIS},
    "plus-json": {"BACKEND": PLUS, "LOCATION": REDIS, "OPTIONS": {"SERIALIZER": "django_redis.serializers.json.JSONSerializer", "COMPRESSOR": "django_redis.compressors.zlib.ZlibCompressor"}},
    "pymemcache": {"BACKEND": f"{CORE}.memcached.PyMemcacheCache", "LOCATION": f"127.0.0.1:{port('memcached')}"},
    "pymemcache-all": {"BACKEND": f"{CORE}.memcached.PyMemcacheCache", "LOCATION": [f"127.0.0.1:{port('memcached', n)}" for n in range(NODES)]},
    "pylibmc": {"BACKEND": f"{CORE}.memcached.PyLibMCCache", "LOCATION": f"127.0.0.1:{port('memcached')}"},
}
# By default Django gives redis-py no repeats; redis-py alone repeats three times.
PATIENT = {"retry": Retry(ExponentialBackoff(0.5, 0.05), 10), "socket_timeout": 3}
OWN = f"redis://127.0.0.1:{port('any-key', VICTIM)}"
STORES |= {
    "ride": {"BACKEND": f"{CORE}.redis.RedisCache", "LOCATION": f"redis://127.0.0.1:{port('any-key')}"},
    "ride-own": {"BACKEND": f"{CORE}.redis.RedisCache", "LOCATION": OWN},
    "ride-own-patient": {"BACKEND": f"{CORE}.redis.RedisCache", "LOCATION": OWN, "OPTIONS": PATIENT},
    "ride-memcached": {"BACKEND": f"{CORE}.memcached.PyMemcacheCache", "LOCATION": f"127.0.0.1:{port('memcached', VICTIM)}"},
    "ride-memcached-all": {
        "BACKEND": f"{CORE}.memcached.PyMemcacheCache", "LOCATION": [f"127.0.0.1:{port('memcached', n)}" for n in range(NODES)],
        "OPTIONS": {"timeout": 1, "connect_timeout": 1, "retry_attempts": 1},
    },
}  # fmt: skip
settings.configure(
    SECRET_KEY="s", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, INSTALLED_APPS=["django.contrib.sessions"],
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"], SESSION_ENGINE="django.contrib.sessions.backends.cache",
    CACHES={"default": STORES["core"], **{name: {**store, "KEY_PREFIX": RUN + name} for name, store in STORES.items()}},
)  # fmt: skip
django.setup()

from django.http import HttpResponse  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import path  # noqa: E402
from django.views.decorators.cache import cache_page  # noqa: E402

made = []


def count(request):
    request.session["count"] = request.session.get("count", 0) + 1
    return HttpResponse(str(request.session["count"]))


@cache_page(60)
def slow(_):
    made.append(1)
    return HttpResponse(f"page {len(made)}")


def leave(request):
    request.session.flush()
    return HttpResponse("out")


urlpatterns = [path("count", count), path("slow", slow), path("leave", leave)]


def cache_of(name):
    def run():
        cache = caches[name]
        cache.set("a", {"b": [1, 2]}, 100)
        equal(cache.get("a"), {"b": [1, 2]})
        assert not cache.add("a", 1) and cache.add("new", 1)
        equal(cache.get_or_set("lazy", lambda: 7, 10), 7)
        cache.set("n", 5)
        equal([cache.incr("n"), cache.incr("n", 4), cache.decr("n")], [6, 10, 9])
        try:
            cache.incr(key("no such key"))
            raise AssertionError("incr of a key that is not there")
        except ValueError:
            pass
        assert not cache.set_many({"x": 1, "y": 2}, 100)
        equal(cache.get_many(["x", "y", "z"]), {"x": 1, "y": 2})
        cache.delete_many(["x", "y"])
        assert cache.touch("a", 1) and cache.delete("new") and not cache.delete("new")
        until(lambda: cache.get("a") is None)
        cache.set("v", 1, version=2)
        assert cache.has_key("v", version=2) and cache.get("v") is None
        cache.clear()
        assert cache.get("n") is None

    return run


def sessions(name):
    def run():
        settings.SESSION_CACHE_ALIAS = name
        browser = Client()
        equal([browser.get("/count").content for _ in range(3)], [b"1", b"2", b"3"])
        equal(browser.get("/leave").content, b"out")
        equal(browser.get("/count").content, b"1")

    return run


def pages():
    settings.CACHE_MIDDLEWARE_ALIAS = "core"
    equal([Client().get("/slow").content for _ in range(2)], [b"page 1"] * 2)


def plus_more():
    cache = caches["plus"]
    cache.set("p:1", 1, timeout=None)
    cache.set("p:2", 2, timeout=100)
    equal([cache.ttl("p:1"), cache.ttl("p:no")], [None, 0])
    assert 90 < cache.ttl("p:2") <= 100
    equal(sorted(cache.keys("p:*")), ["p:1", "p:2"])
    equal(sorted(cache.iter_keys("p:*")), ["p:1", "p:2"])
    with cache.lock("lock", timeout=5):
        assert not cache.set("p:1", 2, nx=True)
    equal(cache.delete_pattern("p:*"), 2)


core, plus = Trial("Django core cache", django.get_version()), Trial("django-redis", version("django-redis"))
core.check("any-key", "RedisCache: every method", cache_of("core"))
core.check("any-key", "RedisCache with several addresses", cache_of("core-several"))
core.check("any-key", "sessions", sessions("core"))
core.check("any-key", "cached pages", pages)
plus.check("any-key", "every method", cache_of("plus"))
plus.check("any-key", "JSON and zlib", cache_of("plus-json"))
plus.check("any-key", "sessions", sessions("plus"))
plus.check("any-key", "ttl, keys, iter_keys, delete_pattern, lock", plus_more)
core.check("memcached", "PyMemcacheCache: every method", cache_of("pymemcache"))
core.check("memcached", "PyMemcacheCache with all nodes", cache_of("pymemcache-all"))
core.check("memcached", "PyLibMCCache: every method", cache_of("pylibmc"))
core.check("memcached", "sessions", sessions("pymemcache"))


def of(name):
    def connect():
        # Each thread has a cache object of its own, as in a site.
        cache = caches[name]

        def put(key_, value):
            # That a set has failed is not told: an old value may be there.
            cache.set(key_, value)
            assert cache.get(key_) == value, "not set"

        def get(key_):
            value = cache.get(key_)
            assert value is not None, "a miss"
            return value

        return put, get

    return connect


core.ride({
    "RedisCache, any-key port, another node dies": of("ride"),
    "RedisCache, any-key port, its own node dies": of("ride-own"),
    "RedisCache, any-key port, its own node dies; `retry` and `socket_timeout` 3": of("ride-own-patient"),
    "PyMemcacheCache, memcached port, its own node dies": of("ride-memcached"),
    "PyMemcacheCache, memcached ports of all nodes; `timeout` and `connect_timeout` 1, `retry_attempts` 1": of("ride-memcached-all"),
})
