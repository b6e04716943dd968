"""Ends that the nodes certify themselves (P10.4), and nodes that are asked to end (P10.20): started by hand, with a `state_dir`.

RESTARTS=20 sets how often the timed test kills a node."""

import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

import pytest
import redis

from conftest import TIMEOUT_S, free_base, standing_still, until
from test_coordinator_trouble import ByHand, load
from test_second_process import WAITS

RESTARTS = int(os.environ.get("RESTARTS", "20"))


class Cluster(ByHand):
    """Nodes with more settings, and perhaps inside a command."""

    def __init__(self, run, directory, more="", stand_in=True, **options):
        self.more, self.options = more, options

        def start(task, settings, **others):
            more = "" if task == "node" or stand_in else "stand_in = false\n"
            return run(task, settings + more, **others)

        super().__init__(start, directory, nodes=6)

    def start_node(self, node, more=None):
        settings = f'id = {node}\nport = {self.port + node}\nmemory = "64mb"\ncoordinator = ["{self.address}"]\n'
        return self.run("node", settings + (self.more if more is None else more), **self.options)


def log_of(process):
    return process.log.read_text(encoding="utf-8")


def says(process, words):
    return words in log_of(process)


def is_right(cluster, values, node=0):
    try:
        return cluster.client(node).mget(list(values)) == list(values.values())
    except redis.RedisError:
        return False


@pytest.fixture
def state_dir():
    """A directory on a file system whose locks hold."""
    shm = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=shm) as directory:
        yield pathlib.Path(directory)


@pytest.mark.measures_time
@pytest.mark.timeout(30 * RESTARTS + 120)
def test_a_node_killed_and_started_at_once_is_back_in_half_a_second(run, tmp_path, state_dir):
    """As systemd does it, without a supervisor that certifies the end."""
    cluster = Cluster(run, tmp_path, f'state_dir = "{state_dir}"\n')
    values = load(cluster)
    times = []
    for n in range(RESTARTS):
        victim = 1 + n % 5
        began = time.monotonic()
        cluster.restart(victim)
        until(lambda: is_right(cluster, values), "all keys")
        times.append(time.monotonic() - began)
        until(lambda: cluster.is_whole() and cluster.is_settled(), "all positions live")
    print(f"all keys again after {statistics.median(times):.2f} s in the median of {RESTARTS}, {max(times):.2f} s at most")
    assert statistics.median(times) <= 0.5, times
    assert not any(entry["lost"] for entry in cluster.status()["lists"])


def test_a_node_that_is_asked_to_end_waits_until_the_others_have_all_data(run, tmp_path):
    cluster = Cluster(run, tmp_path, stand_in=False)
    values = load(cluster)
    cluster.processes[4].kill()
    cluster.processes[4].wait()
    leaver = cluster.processes[3]
    leaver.send_signal(signal.SIGTERM)
    # Until n4 counts as silent, a proof that it runs is waited for.
    until(lambda: re.search(r"still serving: list .* at n4", log_of(leaver)), "the node to say what it waits for")
    assert says(leaver, "asked to end: serves until"), log_of(leaver)
    assert cluster.client(3).ping() and leaver.poll() is None
    cluster.processes[4] = cluster.start_node(4)
    assert leaver.wait(TIMEOUT_S) == 0
    assert says(leaver, "the other nodes have all data"), log_of(leaver)
    until(lambda: cluster.says("n3 was asked to end, and may"), "the coordinator to say so")
    until(lambda: cluster.says("the process of n3 has ended"), "the end to be certified")
    cluster.processes[3] = cluster.start_node(3)
    until(lambda: is_right(cluster, values), "all keys")


def test_nodes_of_a_whole_cluster_end_one_after_the_other_and_lose_nothing(run, tmp_path, state_dir):
    """A rolling restart: each waits until the one before is rebuilt."""
    cluster = Cluster(run, tmp_path, f'state_dir = "{state_dir}"\n')
    values = load(cluster)
    for node in range(6):
        cluster.processes[node].send_signal(signal.SIGTERM)
        assert cluster.processes[node].wait(TIMEOUT_S) == 0, log_of(cluster.processes[node])
        cluster.processes[node] = cluster.start_node(node)
    until(lambda: is_right(cluster, values), "all keys")
    assert not any(entry["lost"] for entry in until(cluster.status, "a status")["lists"])


def test_of_nodes_that_are_all_asked_to_end_at_once_most_stay(run, tmp_path):
    cluster = Cluster(run, tmp_path, stand_in=False)
    values = load(cluster)
    for process in cluster.processes:
        process.send_signal(signal.SIGTERM)

    def waits_or_ended():
        return all(process.poll() is not None or says(process, "still serving") for process in cluster.processes)

    until(waits_or_ended, "each to end or to wait")
    ended = until(lambda: [node for node, process in enumerate(cluster.processes) if process.poll() is not None], "one to end")
    assert len(ended) <= 2, ended
    for node in ended:
        cluster.processes[node] = cluster.start_node(node)
    # Each that comes back lets another one go.
    left = [process for node, process in enumerate(cluster.processes) if node not in ended]
    while left:
        gone = until(lambda: [process for process in left if process.poll() is not None], "another one to end")
        for process in gone:
            node = cluster.processes.index(process)
            left.remove(process)
            cluster.processes[node] = cluster.start_node(node)
    until(lambda: is_right(cluster, values), "all keys")


def test_a_second_signal_ends_a_node_that_waits_and_sighup_does_not(run, tmp_path):
    cluster = Cluster(run, tmp_path)
    cluster.stop_coordinator()
    node = cluster.processes[3]
    # What comes at once with the first signal counts for it. Two of one kind would be one.
    with standing_still(node.pid):
        for several in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            node.send_signal(several)
    until(lambda: says(node, "still serving: no coordinator answers"), "the node to say what it waits for")
    node.send_signal(signal.SIGHUP)
    assert cluster.client(3).ping() and node.poll() is None
    node.send_signal(signal.SIGTERM)
    assert node.wait(TIMEOUT_S) == 0
    assert says(node, "asked to end a second time")


def test_a_node_does_not_wait_longer_than_its_setting(run, tmp_path):
    cluster = Cluster(run, tmp_path, "stop_wait_ms = 1500\n")
    cluster.stop_coordinator()
    node = cluster.processes[3]
    node.send_signal(signal.SIGTERM)
    assert node.wait(TIMEOUT_S) == 0
    assert says(node, "stop_wait_ms = 1500 is over"), log_of(node)


def test_a_copy_of_a_state_file_proves_nothing(run, tmp_path, state_dir):
    """As on a machine that was made from another one's disk: the process that the file names still runs."""
    cluster = Cluster(run, tmp_path, f'state_dir = "{state_dir}/own"\n')
    values = load(cluster)
    shutil.copytree(state_dir / "own", state_dir / "copy")
    port = free_base(1)
    second = cluster.run(
        "node",
        f'id = 3\nport = {port}\nmemory = "64mb"\ncoordinator = ["{cluster.address}"]\nstate_dir = "{state_dir}/copy"\n',
    )
    until(lambda: says(second, WAITS), "the second process to wait")
    assert is_right(cluster, values) and cluster.processes[3].poll() is None
    assert not cluster.says("the process of n3 has ended") and second.poll() is None


def test_a_second_process_in_one_state_dir_is_refused_in_words(run, tmp_path, state_dir):
    cluster = Cluster(run, tmp_path, f'state_dir = "{state_dir}"\n')
    port = free_base(1)
    second = cluster.run(
        "node", f'id = 3\nport = {port}\nmemory = "64mb"\ncoordinator = ["{cluster.address}"]\nstate_dir = "{state_dir}"\n'
    )
    assert second.wait(TIMEOUT_S) != 0
    assert says(second, "another process of n3 runs on this machine") and says(second, "node-3.state"), log_of(second)
    assert cluster.processes[3].poll() is None


def test_a_state_dir_whose_locks_may_not_hold_is_named_and_not_used(run, tmp_path, state_dir):
    parts = [state_dir / name for name in ("lower", "upper", "work", "merged")]
    for part in parts:
        part.mkdir()
    lower, upper, work, merged = parts
    mount = f"mount -t overlay overlay -o lowerdir={lower},upperdir={upper},workdir={work} {merged}"
    inside = ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no overlay can be mounted here")
    cluster = Cluster(run, tmp_path)
    cluster.processes[3].kill()
    cluster.processes[3].wait()
    cluster.options = {"inside": inside}
    cluster.processes[3] = cluster.start_node(3, f'state_dir = "{merged}"\n')
    until(lambda: says(cluster.processes[3], "node runs"), "the node to run")
    said = log_of(cluster.processes[3])
    assert "type 0x794c7630" in said and "The node runs without it" in said, said
