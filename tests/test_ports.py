"""Which ports `paritas dev` takes, and how other commands find a cluster."""

import os
import shutil
import signal
import socket
import subprocess

import pytest

from conftest import BINARY, TIMEOUT_S, free_base, once_served, until

SMALL = {"nodes": 3, "scheme": "2+1", "memory": "64mb"}


def paritas(*words, inside=()):
    return subprocess.run([*inside, BINARY, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def addresses(cluster):
    """Of every process: those of the nodes for each other, then that of the coordinator."""
    status = cluster.any_status()
    return [node["peer_address"] for node in status["nodes"]] + [status["coordinator_address"]]


def listening(pid):
    """Ports on which anybody listens in the network namespace of a process."""
    with open(f"/proc/{pid}/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A"}


@pytest.fixture
def alone(tmp_path):
    """Starts processes in one network namespace in which no port is taken."""
    if not shutil.which("unshare") or not shutil.which("nsenter"):
        pytest.skip("unshare and nsenter are not there")
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    running = [holder]
    try:
        if holder.stdout.readline() != "up\n":
            pytest.skip(f"no network namespace can be had here: {holder.stderr.read()}")
        inside = ["nsenter", "--net", "--target", str(holder.pid)]

        def start(*command):
            output = tmp_path / f"output-{len(running)}"
            with open(output, "w", encoding="utf-8") as file:
                running.append(subprocess.Popen([*inside, *command], stdout=file, stderr=file))
            return running[-1], output

        start.inside = inside
        yield start
    finally:
        for process in reversed(running):
            # Nodes would wait for permission to end (P10.20).
            process.kill()
            process.wait(timeout=TIMEOUT_S)


def test_by_default_only_the_ports_of_clients_are_fixed_and_no_flags_are_needed(alone):
    taken = [16379, 6300]
    code = f"import socket, time; kept = [socket.create_server(('127.0.0.1', p)) for p in {taken}]; print('up', flush=True); time.sleep(3600)"
    others, said = alone("python3", "-c", code)
    until(lambda: said.read_text() == "up\n" or others.poll() is not None, "other servers")
    dev, said = alone(BINARY, "dev", "--nodes", "3", "--scheme", "2+1", "--memory", "64mb")
    until(lambda: "\nready" in said.read_text() or dev.poll() is not None, "ready")
    assert dev.poll() is None, said.read_text()
    clients = {port + node for port in (6379, 7379, 8379) for node in range(3)}
    chosen = listening(dev.pid) - clients - set(taken)
    assert listening(dev.pid) == clients | set(taken) | chosen and len(chosen) == 4, "three nodes and the coordinator"
    status = paritas("status", inside=alone.inside)
    assert status.returncode == 0, status
    for port in chosen:
        assert str(port) in said.read_text() and str(port) in status.stdout, port
    fence = paritas("fence", "1", inside=alone.inside)
    assert "n1" in fence.stderr and "was heard" in fence.stderr, fence
    assert paritas("set", inside=alone.inside).stdout.startswith("suspicion_ms=")


def test_two_clusters_on_one_machine_are_told_apart_by_their_ports(start_cluster):
    one, other = (start_cluster(**SMALL) for _ in range(2))
    every = addresses(one) + addresses(other)
    assert len(set(every)) == 2 * 4
    for cluster, value in ((one, "2500"), (other, "3500")):
        for address in addresses(cluster):
            assert address in cluster.text()
        changed = paritas("set", f"suspicion_ms={value}", "--port", str(cluster.port + 1))
        assert changed.returncode == 0, changed
    for cluster, value in ((one, "2500"), (other, "3500")):
        assert paritas("set", "--port", str(cluster.port)).stdout.startswith(f"suspicion_ms={value}\n")
        text = paritas("status", "--port", str(cluster.port)).stdout
        assert f"coordinator at {addresses(cluster)[-1]}\n" in text, text
        assert paritas("status", "--coordinator", addresses(cluster)[-1]).returncode == 0
    one.client().set("here", "1")
    assert other.client().get("here") is None


def test_every_process_that_is_started_again_has_the_ports_of_the_one_before(start_cluster):
    cluster = start_cluster(**SMALL)
    before = addresses(cluster)
    cluster.client().set("before", "1")
    for node in range(3):
        cluster.until_replaced(cluster.kill(node))
    os.kill(cluster.processes()[3], signal.SIGKILL)
    # Each process once, or more often: a node that stood still for too long ends too.
    until(lambda: cluster.text().count("starting it again") >= 4, "dev to say so")
    assert addresses(cluster) == before
    assert cluster.client(1).get("before") == "1"
    # The coordinator replaces nodes as before.
    cluster.until_replaced(cluster.kill(1))
    assert addresses(cluster) == before


def test_a_port_that_is_taken_while_its_node_is_down_is_named_and_waited_for(start_cluster):
    cluster = start_cluster(**SMALL)
    cluster.client().set("before", "1")
    port = cluster.port + 1_001
    log = cluster.directory / "data" / "node-1.log"
    # Without a log the node cannot be started, which gives time to take its port.
    log.rename(log.with_suffix(".old"))
    log.mkdir()
    dead = cluster.kill(1)
    until(lambda: "node-1 cannot be started" in cluster.text(), "dev to say so")
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", port))
        thief.listen()
        log.rmdir()
        until(lambda: f"cannot listen on 127.0.0.1:{port}, for cluster-aware clients" in cluster.text(), "dev to name the port")
        assert once_served(lambda: cluster.client().get("before")) == "1" and cluster.process.poll() is None
    cluster.until_replaced(dead)
    assert cluster.client(1).get("before") == "1"


def test_an_order_that_finds_no_node_says_what_to_give():
    port = free_base(1)
    for order in (["fence", "1"], ["reset-list", "--lost"], ["set"]):
        refused = paritas(*order, "--port", str(port))
        assert refused.returncode == 1 and str(port) in refused.stderr, refused
        assert "--port" in refused.stderr and "--coordinator" in refused.stderr, refused
    both = paritas("set", "--port", str(port), "--coordinator", "127.0.0.1:1")
    assert both.returncode != 0 and "cannot be used with" in both.stderr
