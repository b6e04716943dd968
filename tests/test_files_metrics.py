"""`/metrics` of `paritas files steward`, as a scraper reads it."""

import http.client
import re
import signal
import socket
import subprocess

import pytest
import redis

from conftest import BINARY, TIMEOUT_S, free_base, until
from test_files import MIB, NODES, SUBBLOCKS, client, start, store  # pylint: disable=unused-import

SAMPLE = re.compile(r'^([a-z_]+)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"(?:,|$)')


def get(port, path="/metrics", method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    connection.request(method, path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def scrape(port):
    """The samples by name and labels, `name{label=value,…}`. Each family is announced once, before its samples."""
    status, text = get(port)
    assert status == 200, text
    family, families, samples = None, set(), {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert kind in ("counter", "gauge") and family not in families
            assert (kind == "counter") == family.endswith("_total"), line
            families.add(family)
        elif not line.startswith("# HELP "):
            name, labels, value = SAMPLE.match(line).groups()
            assert name == family, line
            labels = ",".join(f"{key}={value}" for key, value in LABEL.findall(labels or ""))
            key = f"{name}{{{labels}}}"
            assert key not in samples, line
            samples[key] = float(value)
    return samples


class Figures:
    """A steward's figures; names are without their beginning, and without the mount."""

    def __init__(self, port):
        self.port = port

    def read(self):
        return {
            key.removeprefix("paritas_files_").replace("{mount=lake,", "{").replace("{mount=lake}", ""): value
            for key, value in scrape(self.port).items()
        }

    def until(self, expected):
        last = {}

        def reached():
            last.clear()
            read = self.read()
            last.update({key: read.get(key) for key in expected})
            return last == expected

        until(reached, lambda: f"{expected}, got {last}")


@pytest.fixture
def measured(store, start):
    """Starts a steward that serves figures. Returns it, and its figures."""

    def run(leads=True, **settings):
        port = free_base(1)
        steward = start(store.port, leads, head=f'metrics_listen = "127.0.0.1:{port}"', **settings)
        return steward, Figures(port)

    return run


def test_figures_follow_what_clients_do(measured, store):
    steward, figures = measured(blocks=2)
    keys = client(store.port)
    first = figures.read()
    assert first["role{role=leader}"] == 1 and first["role{role=spare}"] == 0 and first["cache_up"] == 1
    assert first["blocks_max"] == 2 and first["block_bytes"] == 16 * MIB and first["opens_total"] == 0
    assert first["entries{state=cached}"] == 0 and first["parity_bytes{state=cached}"] == 0
    assert "last_sample_age_seconds" not in first

    steward.cache(keys, 1)
    steward.cache(keys, 2)
    _, reader, *_ = steward.open(1)
    figures.until({
        "opens_total": 3, "decisions_total{decision=should-cache}": 2, "decisions_total{decision=cached}": 1,
        "commits_total": 2, "entries{state=cached}": 2, "parity_bytes{state=cached}": 2 * SUBBLOCKS * MIB, "pins": 1,
        "blocks{state=used}": 2, "blocks{state=doomed}": 0, "evictions_total": 0})
    # File 2 goes for file 3, whose parity is then dropped. File 1 is in use, and there is no room for two more.
    _, pin, *_ = steward.open(3)
    assert steward.ask("DONE", pin, "DROP") == "OK"
    assert steward.ask("ROOM", 4, 2, 4, "contiguous", 16 * MIB)[0] == 0
    steward.ask("DONE", reader, "CLOSE")
    figures.until({
        "evictions_total": 1, "drops_total": 1, "declined_total{reason=no-room}": 1, "rooms_total": 0, "pins": 0,
        "entries{state=cached}": 1, "blocks{state=used}": 1})
    steward.open(1, version=2)
    figures.until({"other_version_total": 1, "opens_total": 5})


def report(steward, slow):
    for _ in range(8):
        samples = [(node, 4 * MIB, 700_000_000 if node == slow else 100_000_000, 0) for node in NODES]
        assert steward.ask("REPORT", *(word for sample in samples for word in sample)) == "OK"


def test_slow_nodes_and_what_is_made_ahead_of_readers(measured):
    steward, figures = measured()
    steward.open(1)
    steward.open(2, nodes=["elsewhere:9866"])
    # Nobody writes their parity.
    for file in (1, 2):
        assert steward.ask("TELL", "deleted", file) == "OK"
    pin = steward.open(3)[1]
    steward.ask("DONE", pin, "DROP")
    figures.until({"nodes": 5, "nodes_with_rate": 0, "samples_total": 0, "blocks{state=doomed}": 0})
    report(steward, "d2:9866")
    figures.until({
        "nodes_with_rate": 4, "nodes_slow": 1, "samples_total": 32, "prefetches_waiting": 1,
        "node_slow{node=d2:9866}": 1, "node_slow{node=d1:9866}": 0,
        "node_rate_bytes_per_second{node=d1:9866}": 40 * MIB})
    assert 0 <= figures.read()["last_sample_age_seconds"] < 60
    assert steward.ask("PREFETCH") == "3"
    words = (f"{1:016x}", 64 * MIB, "contiguous", 4, 16 * MIB, "/data/3", *NODES)
    assert steward.ask("MAKE", 3, *words)[0] == "should-cache"
    assert steward.ask("MAKE", 3, *words)[0] == "should-not-cache", "it is being made"
    figures.until({
        "prefetches_total{outcome=granted}": 1, "prefetches_total{outcome=declined}": 1,
        "prefetches_total{outcome=skipped}": 0, "prefetches_waiting": 0, "affected_total": 0})
    assert steward.open(4)[0] == "should-cache"
    figures.until({"affected_total": 1, "affected_misses_total": 1})


def test_a_spare_and_a_cache_that_is_away_show(measured, store):
    first, figures = measured()
    second, spare = measured(leads=False)
    spare.until({"role{role=spare}": 1, "role{role=leader}": 0, "cache_up": 1, "opens_total": None})
    first.open(1)
    figures.until({"opens_total": 1})
    first.stop(signal.SIGKILL)
    spare.until({"role{role=leader}": 1, "role{role=spare}": 0, "opens_total": 0})
    store.stop()
    spare.until({"role{role=none}": 1, "cache_up": 0})
    assert spare.read()["cache_errors_total{operation=lease}"] > 0
    store.start()
    until(second.leads, "it leads again")
    spare.until({"role{role=leader}": 1, "cache_up": 1})


def test_connections_are_counted_and_refused(measured):
    steward, figures = measured()
    before = figures.read()["clients{}"]
    with socket.create_connection(("127.0.0.1", steward.port), timeout=TIMEOUT_S):
        figures.until({"clients{}": before + 1})
    figures.until({"clients{}": before})


def test_scrapers_that_send_nothing_or_too_much_keep_nobody_out(measured):
    steward, figures = measured()
    held = []
    try:
        for at in range(40):
            raw = socket.create_connection(("127.0.0.1", figures.port), timeout=TIMEOUT_S)
            held.append(raw)
            try:
                raw.sendall(b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * (at * 1000))
            except (BrokenPipeError, ConnectionResetError):
                pass
        assert figures.read()["cache_up"] == 1
    finally:
        for raw in held:
            raw.close()
    assert get(figures.port, "/")[0] == 404 and get(figures.port, method="POST")[0] == 405
    assert steward.open(1)[0] == "should-cache"


def test_an_address_of_metrics_that_is_taken_or_wrong_is_named(store, start, tmp_path):
    steward = start(store.port)
    config = tmp_path / "files.toml"
    mount = f'[mount.lake]\ncache = "127.0.0.1:{store.port}"\nblocks = 4\n'
    for address, what in [
        (f"127.0.0.1:{steward.port}", f"cannot serve metrics on 127.0.0.1:{steward.port}"),
        ("here", "metrics_listen"),
    ]:
        config.write_text(f'listen = "127.0.0.1:{free_base(1)}"\nmetrics_listen = "{address}"\n{mount}', encoding="utf-8")
        command = [BINARY, "files", "steward", "--config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 1 and what in done.stderr, done.stderr
    with pytest.raises(redis.ResponseError, match="unknown command"):
        steward.client.execute_command("FILES.METRICS")
