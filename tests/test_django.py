"""A site of Django as its documentation has it, with nothing of Paritas but the addresses: cache, sessions, cached pages, locks."""

import django
import redis
from django.conf import settings
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from conftest import Background, until

CORE = "django.core.cache.backends"
# By default Django gives redis-py no repeats.
REPEATS = {"retry": Retry(ExponentialBackoff(0.5, 0.05), 10)}
PAGES_AFTER = 50


def site(cluster):
    """Returns what makes a browser. The site's own node is node 3 for Redis, and each for memcached. Settings are of the process:
    one test can have a site."""
    address = f"redis://127.0.0.1:{cluster.port + 3}"
    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        SECRET_KEY="of the test",
        MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
        SESSION_ENGINE="django.contrib.sessions.backends.cache",
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
        CACHES={
            "default": {"BACKEND": f"{CORE}.redis.RedisCache", "LOCATION": address, "OPTIONS": REPEATS},
            "locks": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": address},
            "memcached": {
                "BACKEND": f"{CORE}.memcached.PyMemcacheCache",
                "LOCATION": [f"127.0.0.1:{cluster.port + 2_000 + node}" for node in range(6)],
            },
        },
    )
    django.setup()
    # What these modules do needs the settings.
    from django.core.cache import cache, caches
    from django.http import HttpResponse
    from django.template import engines
    from django.test import Client
    from django.urls import path
    from django.views.decorators.cache import cache_page

    made = []
    fragment = engines["django"].from_string("{% load cache %}{% cache 100 side %}{{ made }}{% endcache %}")

    def count(request):
        request.session["count"] = request.session.get("count", 0) + 1
        return HttpResponse(str(request.session["count"]))

    @cache_page(100)
    def page(_):
        made.append("page")
        return HttpResponse(f"page {len(made)}")

    def side(_):
        made.append("side")
        return HttpResponse(fragment.render({"made": f"side {len(made)}"}))

    def stock(_):
        with caches["locks"].lock("stock", timeout=100):
            cache.set("left", cache.get("left", 10) - 1)
        return HttpResponse(str(cache.get("left")))

    def item(_):
        value = caches["memcached"].get_or_set("item", lambda: made.append("item") or {"made": len(made)}, 100)
        return HttpResponse(str(value["made"]))

    globals()["urlpatterns"] = [path(view.__name__, view) for view in (count, page, side, stock, item)]
    return Client


class Visitor(Background):
    """Counts its own visits: its session has each of them once."""

    def __init__(self, browser):
        super().__init__()
        self.browser, self.count = browser, self.visit(browser)

    @staticmethod
    def visit(browser):
        return int(browser.get("/count").content)

    def work(self):
        while not self.ending.is_set():
            # A visit that was on its way to a dead owner may be in the session or not.
            most = self.count + 1
            while True:
                try:
                    count = self.visit(self.browser)
                    break
                except redis.ResponseError as error:
                    assert str(error).startswith("UNCERTAIN"), error
                    most += 1
            assert self.count < count <= most, f"{count} after {self.count}, at most {most}"
            self.count = count


def test_a_site_runs_by_changing_addresses_and_no_visitor_loses_a_session_when_its_node_is_killed(start_cluster):
    cluster = start_cluster()
    browser = site(cluster)
    for path in "page", "side", "item":
        first = browser().get(f"/{path}").content
        assert first and [browser().get(f"/{path}").content for _ in range(3)] == [first] * 3
    assert [browser().get("/stock").content for _ in range(3)] == [b"9", b"8", b"7"]
    assert [Visitor.visit(browser()) for _ in range(3)] == [1] * 3

    page = browser().get("/page").content
    visitors = [Visitor(browser()) for _ in range(4)]
    for visitor in visitors:
        visitor.start()
    cluster.until_replaced(cluster.kill(3))
    since = [visitor.count for visitor in visitors]
    until(lambda: all(not v.is_alive() or v.count >= n + PAGES_AFTER for v, n in zip(visitors, since)), "more visits")
    for visitor in visitors:
        visitor.stop()
    assert browser().get("/page").content == page
