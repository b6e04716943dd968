"""The duration of a hand-over from a living node (P5.12a). All data positions of one node, or of two, are given
away together under load. Measured: the time from `Seal` to `Serve` that the successors report, and the longest write of
a client meanwhile."""

import os
import statistics
import threading
import time

import pytest

from conftest import TIMEOUT_S, until
from test_moves import duty, held
from test_kill import Writer

pytestmark = pytest.mark.measures_time

# Rounds, and objects in the cluster. Use ROUNDS=20 OBJECTS=100000 for figures to publish.
ROUNDS = int(os.environ.get("ROUNDS", "4"))
OBJECTS = int(os.environ.get("OBJECTS", "10000"))


class Clock(Writer):
    """A writer that records the time of its slowest command."""

    slowest = 0.0

    def write(self, client, key, value):
        began = time.monotonic()
        super().write(client, key, value)
        self.slowest = max(self.slowest, time.monotonic() - began)


def fill(cluster):
    client = cluster.client()
    for start in range(0, OBJECTS, 1000):
        with client.pipeline(transaction=False) as pipe:
            for n in range(start, min(start + 1000, OBJECTS)):
                pipe.set(f"object:{n:017d}", f"{n:032d}")
            assert all(pipe.execute())


def takeovers(cluster):
    """For each node, the number of takeovers and the durations of the latest ones in ms."""
    found = {}
    for node in range(cluster.nodes):
        info = cluster.client(node).info("paritas")
        recent = info["takeover_recent_us"]
        # redis-py returns a list for several numbers, and a number for one.
        recent = recent if isinstance(recent, list) else [recent] if recent != "" else []
        recent = [us / 1000 for us in recent]
        found[node] = (info["takeovers"], recent)
    return found


def new_ones(before, after):
    return [ms for node, (count, recent) in after.items() for ms in recent[: count - before[node][0]]]


def shun(cluster, nodes):
    """Gives all orders at once. Waits until the nodes hold nothing and their positions are Live elsewhere."""
    threads = [
        threading.Thread(target=cluster.client(node).execute_command, args=("PARITAS.DUTY", node, "shun"))
        for node in nodes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    until(lambda: all(held(cluster, node) == 0 for node in nodes) and cluster.is_whole(), "shunned")


def serve_again(cluster, nodes):
    for node in nodes:
        cluster.client(node).execute_command("PARITAS.DUTY", node, "serve")
    until(lambda: all(duty(cluster, node) == "full" for node in nodes) and cluster.is_whole(), "back")


def rounds(cluster, count):
    """For each round with `count` nodes: the slowest takeover, and the slowest write."""
    slowest, waited = [], []
    for n in range(ROUNDS):
        victims = [(n + i) % 6 for i in range(count)]
        writers = [Clock(cluster, (max(victims) + i) % cluster.nodes, f"clock{i}", 500) for i in (1, 2)]
        for writer in writers:
            writer.start()
        until(lambda w=writers: all(writer.acknowledged > 50 for writer in w), "writes")
        before = takeovers(cluster)
        for writer in writers:
            writer.slowest = 0.0
        shun(cluster, victims)
        slowest.append(max(new_ones(before, takeovers(cluster))))
        waited.append(max(writer.slowest for writer in writers) * 1000)
        serve_again(cluster, victims)
        for writer in writers:
            writer.stop()
            assert (writer.refused, writer.uncertain) == (0, 0)
    print(
        f"{count} node(s), {OBJECTS} objects, {ROUNDS} rounds: Seal to Serve of the slowest list, median",
        f"{statistics.median(slowest):.2f} ms, all {[f'{ms:.2f}' for ms in sorted(slowest)]};",
        f"slowest write of a client, median {statistics.median(waited):.0f} ms, worst {max(waited):.0f} ms",
    )
    return slowest


def test_a_living_nodes_lists_change_hands_soon(start_cluster):
    cluster = start_cluster(spares=2)
    fill(cluster)
    for count in (1, 2):
        assert statistics.median(rounds(cluster, count)) < 100
