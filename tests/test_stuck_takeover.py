"""A takeover that is stuck: a node is stopped or dies while its coordinator is away. A connection with several commands
for its keys waits once, its other commands wait no longer, and later commands are refused at once (P5.13)."""

import os
import signal
import time

import pytest

from conftest import TIMEOUT_S, until
from test_coordinator_trouble import ByHand, load

# Two leases, in seconds. The next constant allows for a busy machine.
WAIT = 4.0
MARGIN = 4.0
VICTIM = 3


def keys_of(cluster, node, values):
    """The keys that a node owns: it answers them on its cluster port."""
    strict = cluster.client(node + 1_000).pipeline(transaction=False)
    for key in values:
        strict.get(key)
    return [key for key, answer in zip(values, strict.execute(raise_on_error=False)) if answer == values[key]]


def untouched(cluster, node):
    """A node whose keys do not need that one: it is a parity of none of its lists."""
    needed, owners = set(), set()
    for entry in cluster.status()["lists"]:
        holders = [position["node"] for position in entry["positions"]]
        owners.update(holders[:4])
        if node in holders[4:]:
            needed.update(holders[:4])
    return min(owners - needed - {node})


class Pipeline:
    """Commands sent at once on one connection, and their replies as they come."""

    def __init__(self, client):
        self.connection = client.connection_pool.get_connection()

    def ask(self, *commands):
        """Returns the replies, and the seconds until the last one came."""
        began = time.monotonic()
        self.connection.send_packed_command(self.connection.pack_commands(commands))
        replies = [self.reply() for _ in commands]
        return replies, time.monotonic() - began

    def reply(self):
        try:
            return self.connection.read_response()
        except Exception as error:  # pylint: disable=broad-except
            return error


def is_refused(reply):
    """Whether a command was refused as not done. redis-py removes the first word of errors that it has a class for."""
    return str(reply) in ("The owner of this key is being replaced", "The cluster is down")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("trouble", ["stopped", "killed"])
def test_a_connection_waits_once_for_a_stuck_takeover(run, tmp_path, trouble):
    cluster = ByHand(run, tmp_path, nodes=12)
    values = load(cluster)
    theirs, others = keys_of(cluster, VICTIM, values), keys_of(cluster, untouched(cluster, VICTIM), values)
    assert len(theirs) >= 4 and len(others) >= 4
    pipeline = Pipeline(cluster.client(0))
    reads = [("GET", key) for key in theirs[:4]]
    healthy = [("GET", key) for key in others[:4]]
    commands = [command for pair in zip(reads, healthy) for command in pair]
    expected = [values[key] for key in others[:4]]
    cluster.coordinator.send_signal(signal.SIGSTOP)
    try:
        victim = cluster.processes[VICTIM]
        os.kill(victim.pid, signal.SIGSTOP if trouble == "stopped" else signal.SIGKILL)
        replies, first = pipeline.ask(*commands)
        assert all(map(is_refused, replies[::2])) and replies[1::2] == expected, replies
        replies, second = pipeline.ask(*commands)
        assert all(map(is_refused, replies[::2])) and replies[1::2] == expected, replies
        # Another connection benefits from the same knowledge.
        write = ("SET", theirs[0], "other")
        replies, third = Pipeline(cluster.client(0)).ask(write, *healthy)
        assert is_refused(replies[0]) and replies[1:] == expected, replies
        print(f"{trouble}: first pipeline {first:.2f} s, second {second:.3f} s, another connection's {third:.3f} s")
        assert first < WAIT + MARGIN, "each command waited separately"
        assert max(second, third) < WAIT / 2, "a command waited for an owner known to be stuck"
    finally:
        cluster.coordinator.send_signal(signal.SIGCONT)
        if trouble == "stopped":
            victim.send_signal(signal.SIGCONT)
        else:
            victim.wait()
            cluster.processes[VICTIM] = cluster.start_node(VICTIM)
    began = time.monotonic()
    # Refused commands were not done.
    until(lambda: pipeline.ask(*reads)[0] == [values[key] for key in theirs[:4]], "its keys to be served", TIMEOUT_S)
    print(f"{trouble}: served again after {time.monotonic() - began:.2f} s")
    until(lambda: cluster.is_whole() and cluster.is_settled(), "all positions live")
    client = cluster.client()
    assert {key: client.get(key) for key in values} == values


@pytest.mark.timeout(300)
def test_commands_whose_owner_gets_no_acks_wait_once(run, tmp_path):
    """The owner runs and serves, but both parity nodes of some of its lists stand still, and nobody replaces them."""
    cluster = ByHand(run, tmp_path, nodes=6)
    values = load(cluster)
    theirs = keys_of(cluster, 0, values)
    pipeline = Pipeline(cluster.client(0))
    stopped = [cluster.coordinator, *cluster.processes[4:]]
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    try:
        replies, first = pipeline.ask(*(("SET", key, "new") for key in theirs))
        stuck = [key for key, reply in zip(theirs, replies) if str(reply).startswith("UNCERTAIN")]
        assert stuck, replies
        assert first < WAIT + MARGIN, "each command waited separately"
        for asked in [pipeline, Pipeline(cluster.client(0)), Pipeline(cluster.client(1))]:
            replies, again = asked.ask(*(("GET", key) for key in stuck), *(("SET", key, "no") for key in stuck))
            assert all(map(is_refused, replies)), replies
            print(f"first pipeline {first:.2f} s, later one {again:.3f} s")
            assert again < WAIT / 2, "a command waited for acks known not to come"
    finally:
        for process in stopped:
            process.send_signal(signal.SIGCONT)
    # The refused writes were not done. The first ones were: their owner has them, and its parity nodes run again.
    expected = ["new"] * len(stuck)
    until(lambda: pipeline.ask(*(("GET", key) for key in stuck))[0] == expected, "its keys to be served", TIMEOUT_S)
    until(lambda: pipeline.ask(("SET", stuck[0], "later"))[0] == ["OK"], "writes to be done", TIMEOUT_S)


@pytest.mark.timeout(300)
def test_a_write_sent_to_a_node_that_stands_still_is_uncertain(run, tmp_path):
    cluster = ByHand(run, tmp_path, nodes=12)
    values = load(cluster)
    theirs, others = keys_of(cluster, VICTIM, values), keys_of(cluster, untouched(cluster, VICTIM), values)
    pipeline = Pipeline(cluster.client(0))
    cluster.coordinator.send_signal(signal.SIGSTOP)
    victim = cluster.processes[VICTIM]
    victim.send_signal(signal.SIGSTOP)
    try:
        replies, took = pipeline.ask(("SET", theirs[0], "sent"), ("GET", others[0]), ("SET", theirs[1], "sent"))
        assert replies[1] == values[others[0]]
        assert all(str(reply).startswith("UNCERTAIN") for reply in replies[::2]), replies
        # One lease more, in which its owner might have said that it did nothing.
        assert took < 1.5 * WAIT + MARGIN
        replies, took = pipeline.ask(("SET", theirs[2], "refused"), ("GET", others[0]))
        assert is_refused(replies[0]) and replies[1] == values[others[0]], replies
        assert took < WAIT / 2
    finally:
        cluster.coordinator.send_signal(signal.SIGCONT)
        victim.send_signal(signal.SIGCONT)
    client = cluster.client()
    until(lambda: pipeline.ask(("GET", theirs[2]))[0] == [values[theirs[2]]], "its keys to be served")
    assert all(client.get(key) in ("sent", values[key]) for key in theirs[:2])
    assert {key: client.get(key) for key in others} == {key: values[key] for key in others}
