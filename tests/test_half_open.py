"""A peer that vanishes silently: its host still seems connected, but nothing comes back. Each node is on a host of its
own, in a network namespace. Where namespaces are not available, the test is skipped."""

import time

import pytest
import redis

from conftest import until

# Seconds within which a node must notice that a link is dead: far less than TCP's default of 15 minutes, and a little
# more than `Limits::link_silence`.
NOTICED_WITHIN = 12.0


@pytest.fixture
def nodes(make_hosts, run, tmp_path):
    """A coordinator on the switch, and a node on each host."""
    hosts = make_hosts(3)

    def inside(name):
        return ["ip", "netns", "exec", name]

    coordinator = f"{hosts.address(None)}:6300"
    secret = f'secret_file = "{tmp_path}/secret"\n'
    settings = f'{secret}listen = "{coordinator}"\nstore = "{tmp_path}/store"\nscheme = "2+1"\nmemory = "64mb"\n'
    run("coordinator", settings, inside(hosts.name(None)))
    for host in range(3):
        settings = f'{secret}open = true\nid = {host}\nbind = "{hosts.address(host)}"\nport = 6379\nmemory = "64mb"\n'
        run("node", settings + f'coordinator = ["{coordinator}"]\n', inside(hosts.name(host)))
    return hosts


def written(hosts, host, count, value):
    """Whether that node accepts writes of all keys."""
    try:
        client = hosts.client(host)
        try:
            return all(client.set(f"half:{n}", value) for n in range(count))
        finally:
            client.close()
    except redis.RedisError:
        return False


def test_a_silent_link_is_noticed_and_made_again(nodes):
    hosts = nodes
    until(lambda: all(written(hosts, host, 100, "before") for host in range(3)), "all nodes to take writes")
    assert hosts.links(0, 1) >= 2 and hosts.links(1, 0) >= 2
    hosts.cut(0, 1)
    began = time.monotonic()
    try:
        gone = lambda: hosts.links(0, 1) == 0 and hosts.links(1, 0) == 0
        until(gone, "both ends to notice that the other is silent", NOTICED_WITHIN)
        print(f"noticed after {time.monotonic() - began:.1f} s")
    finally:
        hosts.heal()
    healed = time.monotonic()
    until(lambda: hosts.links(0, 1) >= 2, "the links again", NOTICED_WITHIN)
    print(f"linked again {time.monotonic() - healed:.1f} s after the network was whole")
    until(lambda: all(written(hosts, host, 100, "after") for host in range(3)), "all nodes to take writes")
    print(f"all serve {time.monotonic() - healed:.1f} s after the network was whole")
    for host in range(3):
        client = hosts.client(host)
        assert [client.get(f"half:{n}") for n in range(100)] == ["after"] * 100
        client.close()
