"""Celery: where results can be kept, and locks that keep a task from running twice. Messages go through memory."""

import collections
import contextlib
import itertools
import os
import threading
import time
from importlib.metadata import version

import redis
from celery import Celery, chord, group
from celery.contrib.testing.worker import start_worker
from celery_once import AlreadyQueued, QueueOnce
from celery_singleton import DuplicateTaskError, Singleton
import django
from django.conf import settings
from django.core.cache import caches

from trial import MODE, NODES, RUN, TIMEOUT_S, VICTIM, Trial, equal, key, port, until

REDIS = f"redis://127.0.0.1:{port('any-key', 1)}/0"
MEMCACHED = f"cache+memcached://127.0.0.1:{port('memcached')}/"
SEVERAL = "cache+memcached://" + ";".join(f"127.0.0.1:{port('memcached', (VICTIM + n) % NODES)}" for n in range(NODES)) + "/"
BUILTIN = "django.core.cache.backends"
settings.configure(INSTALLED_APPS=["django.contrib.contenttypes", "django_celery_results"], CACHES={
    "default": {"BACKEND": f"{BUILTIN}.redis.RedisCache", "LOCATION": REDIS, "KEY_PREFIX": RUN},
    "memcached": {"BACKEND": f"{BUILTIN}.memcached.PyMemcacheCache", "LOCATION": f"127.0.0.1:{port('memcached')}", "KEY_PREFIX": RUN},
})  # fmt: skip
django.setup()
numbers = itertools.count()

def app_with(results, broker="memory://", **conf):
    """An application, with a queue of its own."""
    made = Celery(f"app{next(numbers)}", broker=broker, backend=results, set_as_current=False)
    made.conf.update(task_default_queue=f"{RUN}-{made.main}", broker_transport_options={"polling_interval": 0.02})
    made.conf.update(redis_retry_on_timeout=False, result_backend_transport_options={"retry_policy": {"max_retries": 1}}, **conf)

    @made.task
    def add(x, y):
        return x + y

    @made.task
    def total(found):
        return sum(found)

    made.add, made.total = add, total
    return made


def working(made):
    return start_worker(made, concurrency=4, pool="threads", perform_ping_check=False, shutdown_timeout=TIMEOUT_S, loglevel="CRITICAL")


@contextlib.contextmanager
def cache_add(alias, name):
    """As in Celery's documentation, "Ensuring a task is only executed one at a time"."""
    held = caches[alias].add(name, "task", 60)
    try:
        yield held
    finally:
        if held:
            caches[alias].delete(name)


@contextlib.contextmanager
def redis_lock(_, name):
    lock = redis.Redis.from_url(REDIS).lock(name, timeout=60)
    held = lock.acquire(blocking=False)
    try:
        yield held
    finally:
        if held:
            lock.release()


app = app_with(
    MEMCACHED, singleton_backend_url=REDIS, singleton_key_prefix=f"{RUN}:singleton:",
    ONCE={"backend": "celery_once.backends.Redis", "settings": {"url": REDIS, "default_timeout": 60}},
)  # fmt: skip
# How many tasks held a lock at a time, and what tasks wait for.
at_work, most, go_on = collections.Counter(), collections.defaultdict(list), threading.Event()


@app.task(bind=True, max_retries=None)
def work(self, alias, name, number):
    with (cache_add if alias else redis_lock)(alias, name) as held:
        if not held:
            raise self.retry(countdown=0.02)
        at_work[name] += 1
        most[name].append(at_work[name])
        time.sleep(0.01)
        at_work[name] -= 1
    return number


@app.task(base=QueueOnce, name=f"{RUN}:once")
def once(number):
    assert go_on.wait(TIMEOUT_S)
    return number


@app.task(base=Singleton, lock_expiry=60)
def single(number):
    assert go_on.wait(TIMEOUT_S)
    return number


@app.task(base=Singleton, lock_expiry=60, raise_on_duplicate=True)
def strict():
    assert go_on.wait(TIMEOUT_S)


def results(made):
    equal(made.add.delay(2, 3).get(timeout=TIMEOUT_S), 5)
    failed = made.add.delay(2, "x")
    until(failed.ready)
    assert failed.failed() and isinstance(failed.result, TypeError), failed.result
    many = group(made.add.s(n, n) for n in range(20)).apply_async()
    equal(many.get(timeout=TIMEOUT_S), [2 * n for n in range(20)])
    many.forget()


def results_in(backend, **conf):
    def run():
        made = app_with(backend, **conf)
        with working(made):
            results(made)

    return run


def chords():
    equal(chord((app.add.s(n, n) for n in range(20)), app.total.s()).apply_async().get(timeout=TIMEOUT_S), 380)


def once_at_a_time(alias=None):
    """Tasks with one lock are not at work together."""
    name = key("lock")
    equal(sorted(group(work.s(alias, name, n) for n in range(12)).apply_async().get(timeout=TIMEOUT_S)), list(range(12)))
    equal(most[name], [1] * 12)


def celery_once():
    go_on.clear()
    first = once.delay(7)
    try:
        once.delay(7)
        raise RuntimeError("queued twice")
    except AlreadyQueued as error:
        assert 0 < error.countdown <= 60, error.countdown
    other = once.delay(8)
    go_on.set()
    equal([first.get(timeout=TIMEOUT_S), other.get(timeout=TIMEOUT_S)], [7, 8])

    def again():
        with contextlib.suppress(AlreadyQueued):
            return once.delay(7)

    # The lock goes after the result has come.
    until(again)


def celery_singleton():
    go_on.clear()
    first, same, other = single.delay(7), single.delay(7), single.delay(8)
    assert first.id == same.id != other.id
    strict.delay()
    try:
        strict.delay()
        raise RuntimeError("queued twice")
    except DuplicateTaskError:
        pass
    go_on.set()
    equal([first.get(timeout=TIMEOUT_S), other.get(timeout=TIMEOUT_S)], [7, 8])
    until(lambda: single.delay(7).id != first.id)


def broker():
    app_with(MEMCACHED, broker=REDIS).add.apply_async((2, 3), retry=False)


DJANGO = "django_celery_results.backends.CacheBackend"
celery = Trial("Celery", version("celery"))
# The end of one worker ends all others of its process.
with working(app) if MODE == "work" else contextlib.nullcontext():
    celery.check("any-key", "a task once at a time: redis.lock", once_at_a_time)
    celery.check("any-key", "a task once at a time: add of Django's RedisCache", lambda: once_at_a_time("default"))
    celery.check("memcached", "a task once at a time: add of Django's PyMemcacheCache", lambda: once_at_a_time("memcached"))
    celery.check("memcached", "results: `cache+memcached://`", lambda: results(app))
    celery.check("memcached", "chords", chords)
    Trial("celery-once", version("celery-once")).check("any-key", "a task queued once", celery_once)
    Trial("celery-singleton", version("celery-singleton")).check("any-key", "a task queued once, raise_on_duplicate", celery_singleton)
celery.check("memcached", "results in all nodes", results_in(SEVERAL))
for kind, alias in ("any-key", "default"), ("memcached", "memcached"):
    celery.check(kind, "results: django-celery-results in Django's cache", results_in(DJANGO, cache_backend=alias))
celery.check("any-key", "results: `redis://`", results_in(REDIS))
celery.check("any-key", "broker: `redis://`", broker)


def locked_task(made, node):
    """A task that holds a lock while it writes. That it is done is known by its result, which the other port keeps."""
    r = redis.Redis(port=port("any-key", node), decode_responses=True)

    @made.task(name=f"write-{made.main}")
    def write(name, value):
        with r.lock(f"{name}:lock", timeout=5, blocking_timeout=5):
            r.set(name, value)
        return value

    def put(name, value):
        equal(write.apply_async((name, value), expires=TIMEOUT_S).get(timeout=TIMEOUT_S, interval=0.005), value)

    return lambda: (put, r.get)


if MODE == "ride":
    # Two workers of one process wait for each other, so each way has a process of its own. Both end with their input.
    is_own = os.fork() == 0
    node, how = (VICTIM, "its own node dies") if is_own else (0, "another node dies")
    ridden = app_with(f"cache+memcached://127.0.0.1:{port('memcached', node)}/")
    way = {f"locks at the any-key port, results at the memcached port, {how}": locked_task(ridden, node)}
    with working(ridden):
        celery.ride(way)
    if not is_own:
        os.wait()
