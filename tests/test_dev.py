"""`paritas dev` as a program: what it refuses, what it leaves behind, what it restarts."""

import os
import shutil
import signal
import socket
import subprocess

import pytest

from conftest import BINARY, TIMEOUT_S, free_base, is_free, is_running, until


def refused(*arguments):
    done = subprocess.run([BINARY, "dev", *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode != 0
    assert "ready" not in done.stdout
    return done.stderr


def test_a_taken_port_is_named_before_anything_starts(tmp_path):
    base = free_base(6)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", base + 1_003))
        taken.listen()
        said = refused("--port", str(base), "--dir", str(tmp_path / "data"))
        assert f"port {base + 1_003}, for cluster-aware clients of node 3" in said and "another --port" in said, said
    assert is_free(base) and not (tmp_path / "data").exists(), "nothing was started"


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("--nodes", "5"), "at least 6"),
        (("--scheme", "4-2"), "4-2"),
        (("--scheme", "0+2"), "0+2"),
        (("--scheme", "200+2"), "200"),
        (("--memory", "1mb"), "at least"),
        (("--memory", "1000gb"), "lower --memory"),
        (("--memory", "plenty"), "plenty"),
        (("--port", "65000"), "up to 67005"),
        (("--nodse", "6"), "--nodse"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(arguments, says):
    assert says in refused(*arguments)


def test_ready_comes_with_three_things_to_try(start_cluster):
    cluster = start_cluster(nodes=3, scheme="1+2")
    lines = cluster.text().splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("ready"))
    assert len(cluster.processes()) == 4
    until(lambda: len(cluster.text().splitlines()) >= at + 4, "three lines after the ready line")
    assert all(line.startswith("  ") for line in cluster.text().splitlines()[at + 1 : at + 4])
    assert "in memory only" in cluster.text()
    assert "exactly 3 nodes" in cluster.text()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind(start_cluster, how):
    cluster = start_cluster(nodes=3, scheme="2+1")
    processes = cluster.processes()
    assert len(processes) == 4 and all(map(is_running, processes))
    cluster.process.send_signal(how)
    cluster.process.wait(timeout=TIMEOUT_S)
    until(lambda: not any(map(is_running, processes)), "all processes to end")


def test_one_node_without_redundancy_serves(start_cluster):
    cluster = start_cluster(nodes=1, scheme="1+0")
    client = cluster.client()
    with client.pipeline(transaction=False) as pipe:
        for n in range(1_000):
            pipe.set(f"key:{n}", n)
        assert all(pipe.execute())
    assert [client.get(f"key:{n}") for n in range(0, 1_000, 100)] == [str(n) for n in range(0, 1_000, 100)]
    # The data is lost: the node comes back empty, and its log says so.
    dead = cluster.kill(0)
    cluster.until_replaced(dead)
    assert cluster.client().get("key:1") is None


def test_a_binary_that_was_replaced_does_not_matter(start_cluster, tmp_path):
    binary = tmp_path / "paritas"
    shutil.copy(BINARY, binary)
    cluster = start_cluster(nodes=3, scheme="2+1", memory="64mb", binary=str(binary))
    cluster.client().set("before", "1")
    # As a build does: another file takes its place.
    binary.unlink()
    binary.write_text("not whole yet", encoding="utf-8")
    cluster.until_replaced(cluster.kill(1))
    assert cluster.client().get("before") == "1" and cluster.process.poll() is None


def test_a_node_that_cannot_be_started_for_now_is_tried_again(start_cluster):
    cluster = start_cluster(nodes=3, scheme="2+1", memory="64mb")
    cluster.client().set("before", "1")
    log = cluster.directory / "data" / "node-1.log"
    log.rename(log.with_suffix(".old"))
    log.mkdir()
    dead = cluster.kill(1)
    until(lambda: cluster.text().count("node-1 cannot be started") >= 2, "dev to report it and to try again")
    assert cluster.process.poll() is None
    log.rmdir()
    cluster.until_replaced(dead)
    assert cluster.client().get("before") == "1"


def test_a_dead_coordinator_comes_back_and_the_cluster_never_noticed(start_cluster):
    cluster = start_cluster(nodes=3, scheme="2+1")
    client = cluster.client()
    client.set("before", "1")
    os.kill(cluster.processes()[-1], signal.SIGKILL)
    for n in range(200):
        assert client.set(f"during:{n}", n) and client.get("before") == "1"
    until(cluster.status, "the coordinator's answer")
    # It continues where it was: a node lost now is replaced.
    dead = cluster.kill(1)
    cluster.until_replaced(dead)
    assert client.get("before") == "1"
    assert [client.get(f"during:{n}") for n in range(200)] == [str(n) for n in range(200)]
