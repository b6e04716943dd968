"""What a node that was wrongly suspected need not read again (P2.4, P5.7f, P6.7). On four hosts with lists of
four positions, the others stand in for a paused node, and it gets its positions back when it continues. For comparison,
the same is done with a node that is killed and restarted, which has no data. Each node is on a host of its own, in a
network namespace."""

import json
import os
import signal
import subprocess

import pytest
import redis

from conftest import BINARY, TIMEOUT_S, until

KEYS, VALUE_BYTES = 12_000, 1_000
HOSTS, VICTIM = 4, 3


@pytest.fixture
def nodes(make_hosts, run, tmp_path):
    hosts = make_hosts(HOSTS)
    coordinator = f"{hosts.address(None)}:6300"
    secret = f'secret_file = "{tmp_path}/secret"\n'

    def inside(host):
        return ["ip", "netns", "exec", hosts.name(host)]

    def start(host):
        settings = f'{secret}open = true\nid = {host}\nbind = "{hosts.address(host)}"\nport = 6379\nmemory = "128mb"\n'
        return run("node", settings + f'coordinator = ["{coordinator}"]\n', inside(host))

    settings = f'{secret}listen = "{coordinator}"\nstore = "{tmp_path}/store"\nscheme = "2+2"\nmemory = "128mb"\n'
    run("coordinator", settings, inside(None))
    return hosts, start, {host: start(host) for host in range(HOSTS)}


def positions(hosts):
    """The positions of all lists; `None` if no node answers."""
    command = ["ip", "netns", "exec", hosts.name(0), BINARY, "status", "--host", hosts.address(0), "--port", "6379", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    lists = json.loads(done.stdout)["lists"] if done.returncode == 0 else []
    return [position for entry in lists for position in entry["positions"]]


def all_live(hosts, without=None):
    """Whether all positions are Live and evenly spread over the nodes; or, with `without`, whether that node has
    none."""
    held = positions(hosts)
    count = [sum(position["node"] == node for position in held) for node in range(HOSTS)]
    shares = len(set(count)) == 1 if without is None else count[without] == 0
    wanted = {"live"} if without is None else {"live", "stand-in"}
    return bool(held) and shares and all(position["state"] in wanted for position in held)


def received(hosts, host):
    """Bytes that the host has received from the others."""
    command = ["ip", "netns", "exec", hosts.name(host), "cat", "/sys/class/net/eth0/statistics/rx_bytes"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def write(hosts, keys, value):
    with hosts.standing(hosts.name(None)), redis.Redis(host=hosts.address(0), socket_timeout=TIMEOUT_S) as client:
        pipe = client.pipeline(transaction=False)
        for n in keys:
            pipe.set(f"stash:{n}", value + f"{n}".rjust(VALUE_BYTES, "x"))
            if len(pipe) == 200:
                pipe.execute()
        pipe.execute()


def takes_writes(hosts):
    try:
        client = hosts.client(0)
        try:
            return all(client.set(f"first:{n}", "there") for n in range(200))
        finally:
            client.close()
    except redis.RedisError:
        return False


def test_who_was_only_paused_reads_little_when_it_is_back(nodes):
    hosts, start, processes = nodes
    until(lambda: takes_writes(hosts), "all keys to take writes")
    client = hosts.client(0)
    write(hosts, range(KEYS), "before")
    until(lambda: all_live(hosts), "all to be live")
    took = {}
    for how in ("paused", "killed"):
        stopped = processes[VICTIM]
        os.kill(stopped.pid, signal.SIGSTOP if how == "paused" else signal.SIGKILL)
        until(lambda: all_live(hosts, VICTIM), "the others to stand in")
        write(hosts, range(0, KEYS, 1000), how)
        began = received(hosts, VICTIM)
        if how == "paused":
            os.kill(stopped.pid, signal.SIGCONT)
        else:
            processes[VICTIM] = start(VICTIM)
        until(lambda: all_live(hosts), "every position to be back")
        took[how] = received(hosts, VICTIM) - began
        for n in range(KEYS):
            value = (how if n % 1000 == 0 else "before") + f"{n}".rjust(VALUE_BYTES, "x")
            assert client.get(f"stash:{n}") == value, n
    print(f"{KEYS} values of {VALUE_BYTES} B: {took['paused']:,} bytes to get back what a paused node had, "
          f"{took['killed']:,} of a killed one ({took['paused'] / took['killed']:.3f})")
    assert took["paused"] < took["killed"] / 3
