"""Flask-Caching and Flask-Limiter, and the strategies of limits without Flask."""

from importlib.metadata import version

import limits
import limits.storage
import limits.strategies
from flask import Flask
from flask_caching import Cache
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

from trial import NODES, Trial, equal, key, port

REDIS = f"redis://127.0.0.1:{port('any-key', 2)}"
CLUSTER = "redis+cluster://" + ",".join(f"127.0.0.1:{port('cluster', n)}" for n in range(NODES))
MEMCACHED = "memcached://" + ",".join(f"127.0.0.1:{port('memcached', n)}" for n in range(NODES))


def caching(**config):
    def run():
        app = Flask(__name__)
        cache = Cache(app, config={"CACHE_KEY_PREFIX": key(""), **config})
        made = []

        @app.route("/slow")
        @cache.cached(timeout=60)
        def slow():
            made.append(1)
            return f"page {len(made)}"

        @cache.memoize(60)
        def double(n):
            made.append(n)
            return 2 * n

        browser = app.test_client()
        equal([browser.get("/slow").data for _ in range(2)], [b"page 1"] * 2)
        with app.app_context():
            equal([double(4), double(4), made], [8, 8, [1, 4]])
            cache.delete_memoized(double)
            equal([double(4), made], [8, [1, 4, 4]])
            assert cache.set("a", {"b": 1}) and cache.add("new", 1) and not cache.add("new", 2)
            equal(cache.get_many("a", "no"), [{"b": 1}, None])
            cache.set_many({"x": 1, "y": 2})
            equal(cache.get_dict("x", "y"), {"x": 1, "y": 2})
            cache.delete_many("x", "y")
            assert cache.has("a") and not cache.has("x")
            cache.clear()
            assert cache.get("a") is None

    return run


def limiter(storage, **options):
    def run():
        app = Flask(__name__)
        limit = Limiter(get_remote_address, app=app, storage_uri=storage, key_prefix=key(""), headers_enabled=True, **options)

        @app.route("/few")
        @limit.limit("3 per minute")
        def few():
            return "ok"

        browser = app.test_client()
        equal([browser.get("/few").status_code for _ in range(5)], [200, 200, 200, 429, 429])
        assert int(browser.get("/few").headers["X-RateLimit-Remaining"]) == 0

    return run


def strategy(name, storage):
    def run():
        store = limits.storage.storage_from_string(storage)
        assert store.check()
        window = limits.strategies.STRATEGIES[name](store)
        three = limits.parse("3 per minute")
        equal([window.hit(three, key("user")) for _ in range(5)], [True, True, True, False, False])
        equal(window.get_window_stats(three, key("user")).remaining, 0)
        window.clear(three, key("user"))
        assert window.test(three, key("user"))

    return run


flask, limited = Trial("Flask-Caching", version("Flask-Caching")), Trial("Flask-Limiter", version("Flask-Limiter"))
flask.check("any-key", "cached, memoize, delete_memoized, many, clear", caching(CACHE_TYPE="RedisCache", CACHE_REDIS_URL=REDIS))
flask.check("memcached", "cached, memoize, delete_memoized, many, clear", caching(CACHE_TYPE="MemcachedCache", CACHE_MEMCACHED_SERVERS=[f"127.0.0.1:{port('memcached')}"]))
STORES = (("any-key", REDIS), ("cluster", CLUSTER), ("memcached", MEMCACHED))
for kind, url in STORES:
    limited.check(kind, "fixed window", limiter(url))
    limited.check(kind, "sliding window counter", limiter(url, strategy="sliding-window-counter"))
    if kind != "memcached":
        limited.check(kind, "moving window", limiter(url, strategy="moving-window"))
bare = Trial("limits", version("limits"))
for kind, url in STORES:
    for name in ("fixed-window", "sliding-window-counter", *(["moving-window"] if kind != "memcached" else [])):
        bare.check(kind, name.replace("-", " "), strategy(name, url))
