"""A cluster of exactly k+m nodes loses hosts, which do not come back: members of the lists stand in (P10.5)."""

import json
import subprocess
import time

import pytest
import redis

from conftest import BINARY, TIMEOUT_S, free_base, serves, until

pytestmark = pytest.mark.measures_time

KEYS = [f"stand:{n}" for n in range(600)]
# As in `dev`: with seven processes on a busy machine, a shorter silence proves little.
SUSPICION, LEASE = 3.0, 4.0
# Additional seconds for two round trips and the first decodes on such a machine.
MARGIN = 6.0


class ByHand:
    """Six nodes of a 4+2 cluster. No end is certified, and ended processes are not restarted."""

    def __init__(self, start, directory):
        self.start_process = start
        self.base = free_base(6)
        self.coordinator = f"127.0.0.1:{self.base + 20_000}"
        start(
            "coordinator",
            f'listen = "{self.coordinator}"\nstore = "{directory}/store"\nscheme = "4+2"\nmemory = "64mb"\n'
            f"suspicion_ms = {int(SUSPICION * 1000)}\nlease_ms = {int(LEASE * 1000)}\n",
        )
        self.nodes = {}
        for node in range(6):
            self.start(node)
        until(lambda: all(serves(self.base + node) for node in range(6)), "all nodes to serve")

    def start(self, node):
        self.nodes[node] = self.start_process(
            "node",
            f'id = {node}\nport = {self.base + node}\nmemory = "64mb"\ncoordinator = ["{self.coordinator}"]\n',
        )

    def kill(self, node):
        self.nodes[node].kill()
        self.nodes[node].wait()

    def positions(self):
        """The state of each position of each list, and the reasons."""
        command = [BINARY, "status", "--port", str(self.base), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if done.returncode != 0:
            return [], []
        lists = json.loads(done.stdout)["lists"]
        return [[p["state"] for p in entry["positions"]] for entry in lists], [entry["reason"] for entry in lists]

    def until_states(self, expected):
        """Waits until every list has positions in these states, in any order."""
        expected = sorted(expected)

        def there():
            states, _ = self.positions()
            return states and all(sorted(found) == expected for found in states)

        until(there, f"lists with {expected}", timeout_s=90)


def read_and_write_all(client, values, version):
    """Reads every key, then writes it. Returns whether everything succeeded. After an uncertain write the key may have
    either value."""
    for key in KEYS:
        try:
            found = client.get(key)
        except redis.RedisError:
            return False
        assert found in values[key], f"{key} is {found}, not one of {values[key]}"
        values[key] = {found}
        new = f"{version}-{key}"
        try:
            client.set(key, new)
            values[key] = {new}
        except redis.RedisError:
            values[key].add(new)
            return False
    return True


def until_all_served(client, values, version):
    begun = time.monotonic()
    until(lambda: read_and_write_all(client, values, version), "all keys read and written", timeout_s=60)
    return time.monotonic() - begun


@pytest.fixture
def by_hand(run, tmp_path):
    return ByHand(run, tmp_path)


def test_lost_hosts_are_stood_in_for_until_they_return(by_hand):
    client = redis.Redis(port=by_hand.base, decode_responses=True, socket_timeout=TIMEOUT_S)
    values = {key: {None} for key in KEYS}
    assert read_and_write_all(client, values, "first")
    took = []
    for lost, node in enumerate([5, 4], start=1):
        by_hand.kill(node)
        took.append(until_all_served(client, values, f"without-{node}"))
        by_hand.until_states(["live"] * (6 - lost) + ["stand-in"] * lost)
        assert client.dbsize() == len(KEYS)
        _, reasons = by_hand.positions()
        assert all("stands in at position" in reason for reason in reasons), reasons
        assert all("the loss of any 1 more node is survived" in reason for reason in reasons), reasons
    print("served again after", [f"{seconds:.1f} s" for seconds in took])
    assert max(took) < SUSPICION + LEASE + MARGIN, took

    for node in (4, 5):
        by_hand.start(node)
    by_hand.until_states(["live"] * 6)
    assert client.dbsize() == len(KEYS)
    assert read_and_write_all(client, values, "last")
    # The nodes that stood in are no longer needed: two losses are survived again.
    by_hand.kill(3)
    by_hand.kill(2)
    until_all_served(client, values, "two at once")
    assert client.dbsize() == len(KEYS)
