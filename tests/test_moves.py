"""Planned moves: a node is drained or shunned while clients write, and comes back. No client command fails."""

import json
import subprocess
import time

import pytest

from conftest import BINARY, TIMEOUT_S, is_running, until
from test_kill import Writer, compare, load


def order(cluster, task, node, *more, asked=0):
    """Runs `paritas drain` or a similar command until it ends."""
    command = [BINARY, task, str(node), "--port", str(cluster.port + asked), *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def held(cluster, node):
    status = cluster.any_status()
    return sum(p["node"] == node for entry in status["lists"] for p in entry["positions"])


def duty(cluster, node):
    return cluster.any_status()["nodes"][node]["duty"]


def places(cluster):
    status = cluster.any_status()
    return [[p["node"] for p in entry["positions"]] for entry in status["lists"]]


class Writers:
    """Clients at some nodes, with both kinds of writers. No command may be refused."""

    def __init__(self, cluster, nodes):
        self.writers = [Writer(cluster, node, f"writer{node}", 300) for node in nodes]
        for writer in self.writers:
            writer.start()
        until(lambda: all(w.acknowledged > 100 for w in self.writers), "writers that write")

    def stop(self):
        for writer in self.writers:
            writer.stop()
            assert (writer.refused, writer.uncertain) == (0, 0), "a planned move made a command fail"

    def check(self, node):
        for writer in self.writers:
            writer.check(node)


# No command may be refused, so no other test may make one wait.
@pytest.mark.measures_time
def test_a_node_is_drained_under_load_and_then_two_others_die(start_cluster, rng):
    cluster = start_cluster(spares=1)
    values = load(cluster, rng, 5_000)
    # One of the clients uses the node that is drained.
    writers = Writers(cluster, [0, 2, 6])
    began = time.monotonic()
    done = order(cluster, "drain", 2, "--json", asked=rng.randrange(7))
    took = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    left = [step["positions"] for step in steps]
    assert left == sorted(left, reverse=True) and left[-1] == 0 and steps[-1]["duty"] == "draining", steps
    writers.stop()
    print(f"drained in {took:.2f} s under load:", [w.acknowledged for w in writers.writers], "writes acknowledged")
    until(cluster.is_whole, "all positions live")
    for node in range(cluster.nodes):
        compare(cluster, node, values)
        writers.check(node)
    text = subprocess.run([BINARY, "status", "--port", str(cluster.port)], capture_output=True, text=True, check=True)
    assert "n2 is drained: it holds 0 positions" in text.stdout
    # It stays out, whichever nodes die.
    dead = cluster.kill(*rng.sample([0, 1, 3, 4, 5, 6], 2))
    compare(cluster, 2, values)
    writers.check(2)
    cluster.until_replaced(dead)
    for node in range(cluster.nodes):
        compare(cluster, node, values)
        writers.check(node)
    assert (held(cluster, 2), duty(cluster, 2)) == (0, "draining")


@pytest.mark.measures_time
def test_a_node_is_shunned_and_comes_back(start_cluster, rng):
    cluster = start_cluster(spares=1)
    values = load(cluster, rng, 3_000)
    before = places(cluster)
    writers = Writers(cluster, [1, 3])
    for _ in range(3):
        done = order(cluster, "shun", "n3")
        assert done.returncode == 0 and "n3 holds nothing" in done.stdout, done
        assert held(cluster, 3) == 0
        done = order(cluster, "shun", 3, "--undo", asked=3)
        assert done.returncode == 0, done
        assert "n3 holds 6 positions" in done.stdout.splitlines()[-1], done
    assert places(cluster) == before
    until(cluster.is_whole, "all positions live")
    writers.stop()
    for node in range(cluster.nodes):
        compare(cluster, node, values)
        writers.check(node)


def test_an_order_survives_the_coordinator(start_cluster):
    cluster = start_cluster(spares=1)
    assert order(cluster, "drain", 4).returncode == 0
    coordinator = cluster.processes()[-1]
    cluster.kill_process(coordinator)
    until(lambda: not is_running(coordinator), "it is gone")
    assert (held(cluster, 4), duty(cluster, 4)) == (0, "draining")


def test_what_cannot_be_is_refused_with_a_reason(start_cluster):
    cluster = start_cluster(nodes=3, scheme="1+2")
    for node, why in (("9", "n9 has not registered"), ("1", "too few nodes: 1+2 needs 3")):
        done = order(cluster, "drain", node)
        assert done.returncode == 1 and why in done.stderr, done
    done = order(cluster, "shun", "somebody")
    assert done.returncode == 2 and "`somebody` is not a node" in done.stderr, done
    client = cluster.client()
    with pytest.raises(Exception, match="usage: PARITAS.DUTY"):
        client.execute_command("PARITAS.DUTY", "1", "dance")
    assert duty(cluster, 1) == "full"


def test_orders_for_two_nodes_depend_on_each_other(start_cluster, rng):
    cluster = start_cluster(spares=1)
    values = load(cluster, rng, 500)
    assert order(cluster, "drain", 6).returncode == 0, "a spare holds nothing, so draining it ends at once"
    done = order(cluster, "drain", 5)
    assert done.returncode == 1 and "too few nodes" in done.stderr, done
    assert order(cluster, "drain", 6, "--undo").returncode == 0
    assert order(cluster, "drain", 5).returncode == 0
    assert (held(cluster, 5), held(cluster, 6)) == (0, 6)
    compare(cluster, 5, values)
