"""Several processes with one node's id (P10.13): only one of them counts, and the others do nothing."""

import signal
import time

import pytest
import redis

from conftest import free_base, until
from test_coordinator_trouble import ByHand, load
from test_recovery import Recovered

WAITS = "another process with this node's id may run"


def start_second(cluster, node):
    """Another process with that node's id, on ports of its own."""
    port = free_base(1)
    settings = f'id = {node}\nport = {port}\nmemory = "64mb"\ncoordinator = ["{cluster.address}"]\n'
    return cluster.run("node", settings)


def waits(process):
    return WAITS in process.log.read_text(encoding="utf-8")


def all_right(cluster, values, node=0):
    client = cluster.client(node)
    try:
        return {key: client.get(key) for key in values} == values
    except redis.RedisError:
        return False


def pids_of(cluster):
    """The process id of each node."""
    return {node["id"]: node["pid"] for node in until(cluster.status, "a status")["nodes"]}


def others_settled(cluster, node):
    """Whether the coordinator hears all nodes, and waits for nothing but tells of a second process of this one."""
    status = cluster.status()
    words = [line for line in status["coordinator"] if f"second process of n{node} " not in line] if status else ["no answer"]
    return not words and all(known["state"] != "down" for known in status["nodes"])


@pytest.mark.timeout(300)
def test_a_second_process_does_not_turn_a_pause_into_a_loss(run, tmp_path):
    """Two nodes die while a third one stands still, so that the lists need what it holds."""
    cluster = ByHand(run, tmp_path, nodes=6)
    values = load(cluster)
    second = start_second(cluster, 3)
    until(lambda: waits(second), "the second process to wait")
    first = cluster.processes[3]
    with cluster.coordinator_stands_still():
        first.send_signal(signal.SIGSTOP)
        for node in (0, 1):
            cluster.processes[node].kill()
            cluster.processes[node].wait()
    try:
        time.sleep(6)  # the length of the pause is tested

        def is_said():
            words = cluster.status(2)["coordinator"]
            return any("second process of n3" in line and "paritas fence 3" in line for line in words)

        until(is_said, "status to tell of the second process")
    finally:
        first.send_signal(signal.SIGCONT)
    until(lambda: all_right(cluster, values, node=2), "all keys to be right")
    assert not any(entry["lost"] for entry in cluster.status(2)["lists"])
    assert second.poll() is None and first.poll() is None


@pytest.mark.timeout(300)
def test_a_second_process_gets_the_place_of_one_that_has_ended(run, tmp_path):
    cluster = ByHand(run, tmp_path, nodes=6)
    values = load(cluster)
    second = start_second(cluster, 3)
    until(lambda: waits(second), "the second process to wait")
    cluster.processes[3].kill()
    cluster.processes[3].wait()
    # It looks whole and settled also before the end is noticed.
    until(lambda: pids_of(cluster)[3] == second.pid and cluster.is_whole() and cluster.is_settled(), "all positions live")
    assert all_right(cluster, values)


@pytest.mark.timeout(300)
def test_of_two_processes_that_may_be_offered_a_place_one_does_nothing(run, tmp_path):
    """Both ask while the coordinator stands still, so that it may offer the place to both in one turn."""
    cluster = Recovered(run, tmp_path, nodes=6)
    values = load(cluster)
    seconds = [start_second(cluster, 3) for _ in range(2)]
    until(lambda: all(map(waits, seconds)), "both processes to wait")
    cluster.processes[3].kill()
    cluster.processes[3].wait()
    for _ in range(3):
        cluster.pause_coordinator(1.3)
    ours = {second.pid for second in seconds}
    # As above.
    until(lambda: pids_of(cluster)[3] in ours and cluster.is_whole() and others_settled(cluster, 3), "all positions live")
    pids = pids_of(cluster)
    # From now on a process that stands still for a while keeps its place.
    until(lambda: cluster.order("set", "suspicion_ms=3000").returncode == 0, "the setting")
    client, deadline = cluster.client(), time.monotonic() + 5
    while time.monotonic() < deadline:
        for key in values:
            # An answer that is not certain would be an error here.
            assert client.set(key, values[key])
    assert all_right(cluster, values)
    assert pids_of(cluster) == pids
