"""The switch between hosts does what the storms rely on: frames are late, lost or cut, in each direction separately,
and in order."""

import socket
import time

import pytest

pytestmark = pytest.mark.measures_time

# Fewer packets than fit in the buffer of a socket.
PACKETS = 200


@pytest.fixture
def hosts(make_hosts):
    return make_hosts(2)


def sockets(hosts):
    for host in (0, 1):
        with hosts.standing(hosts.name(host)):
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind((hosts.address(host), 7))
            made.settimeout(1.0)
            yield made


def arrived(hosts, sender, receiver, to, count=PACKETS):
    """The packets that arrive, in the order of arrival, and the delay of each."""
    found = []
    for n in range(count):
        sender.sendto(f"{n} {time.monotonic()}".encode(), (hosts.address(to), 7))
    try:
        while len(found) < count:
            n, sent = receiver.recv(100).split()
            found.append((int(n), time.monotonic() - float(sent)))
    except TimeoutError:
        pass
    return found


def test_packets_are_late_or_lost_one_way_alone(hosts):
    zero, one = sockets(hosts)
    whole = list(range(PACKETS))
    assert [n for n, _ in arrived(hosts, zero, one, 1)] == whole

    hosts.way(0, 1, delay=0.05, jitter=0.05)
    found = arrived(hosts, zero, one, 1)
    assert [n for n, _ in found] == whole and min(late for _, late in found) >= 0.05
    # Of ten packets, at least one would be quick even on a busy machine.
    assert min(late for _, late in arrived(hosts, one, zero, 0, 10)) < 0.05

    hosts.way(0, 1, loss=0.5)
    # The switch draws the same numbers each time it is started.
    assert PACKETS * 0.4 < len(arrived(hosts, zero, one, 1)) < PACKETS * 0.6

    hosts.way(0, 1, loss=1)
    assert arrived(hosts, zero, one, 1, 10) == []
    assert len(arrived(hosts, one, zero, 0, 10)) == 10

    hosts.heal()
    assert [n for n, _ in arrived(hosts, zero, one, 1)] == whole
