"""A peer that vanishes without a word: its host still seems connected, but nothing comes back. Each node here is a host
of its own, in a network namespace; where those cannot be had, the test is skipped and says so."""

import contextlib
import ctypes
import os
import subprocess
import time

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from conftest import BINARY, PATIENCE, until

NET = "10.77.0"
# Seconds within which a node must have noticed that a link is dead: far below what TCP allows itself by default (15
# minutes), a bit above what `Limits::link_silence` promises.
NOTICED_WITHIN = 12.0


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def enter(namespace):
    """Moves this thread there. (Python has its own `os.setns` only from 3.12 on.)"""
    if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Hosts:
    """Network namespaces on one bridge; the bridge's own namespace is where the tests stand."""

    def __init__(self):
        self.prefix = f"paritas{os.getpid()}"
        self.switch = f"{self.prefix}s"
        self.names = []

    def make(self, count):
        ip("netns", "add", self.switch)
        self.names.append(self.switch)
        ip("-n", self.switch, "link", "set", "lo", "up")
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        ip("-n", self.switch, "addr", "add", f"{NET}.254/24", "dev", "br0")
        for host in range(count):
            name = self.name(host)
            ip("netns", "add", name)
            self.names.append(name)
            port = f"v{host}"
            ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", self.switch)
            ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", self.switch, "link", "set", port, "master", "br0")
            ip("-n", self.switch, "link", "set", port, "up")

    def name(self, host):
        return f"{self.prefix}h{host}"

    @staticmethod
    def address(host):
        return f"{NET}.{host + 1}"

    def cut(self, one, other):
        """What the two send each other goes to nobody: no reset, no error, silence."""
        for here, there in ((one, other), (other, one)):
            nobody = ("lladdr", "02:00:00:00:00:99", "nud", "permanent")
            ip("-n", self.name(here), "neigh", "replace", self.address(there), *nobody, "dev", "eth0")

    def heal(self, one, other):
        for here, there in ((one, other), (other, one)):
            ip("-n", self.name(here), "neigh", "del", self.address(there), "dev", "eth0")

    def links(self, here, there):
        """Connections that `here` takes for established with `there`."""
        wanted = ["ss", "-Htn", "state", "established", "dst", self.address(there)]
        done = subprocess.run(
            ["ip", "netns", "exec", self.name(here), *wanted], check=True, capture_output=True, text=True
        )
        return len(done.stdout.splitlines())

    @contextlib.contextmanager
    def standing(self, name):
        """This thread's new sockets are made in that namespace."""
        with open("/proc/thread-self/ns/net", "rb") as home, open(f"/run/netns/{name}", "rb") as there:
            enter(there)
            try:
                yield
            finally:
                enter(home)

    def client(self, host):
        """A client whose one connection is made now, from the switch."""
        with self.standing(self.switch):
            return redis.Redis(
                host=self.address(host),
                socket_timeout=PATIENCE,
                decode_responses=True,
                single_connection_client=True,
                retry=Retry(NoBackoff(), 0),
            )

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.fixture
def hosts():
    made = Hosts()
    try:
        made.make(3)
    except (OSError, subprocess.CalledProcessError) as error:
        made.remove()
        pytest.skip(f"network namespaces cannot be had here: {getattr(error, 'stderr', '') or error}")
    yield made
    made.remove()


@pytest.fixture
def nodes(hosts, tmp_path):
    """A coordinator on the switch, and a node on each host."""
    running = []

    def start(name, task, settings):
        file = tmp_path / f"{task}-{len(running)}.toml"
        file.write_text(settings, encoding="utf-8")
        log = open(file.with_suffix(".log"), "w", encoding="utf-8")
        command = ["ip", "netns", "exec", name, BINARY, task, "--config", str(file)]
        running.append((subprocess.Popen(command, stdout=log, stderr=log), log))

    coordinator = f"{NET}.254:26379"
    settings = f'listen = "{coordinator}"\nstore = "{tmp_path}/store"\nscheme = "2+1"\nmemory = "64mb"\n'
    start(hosts.switch, "coordinator", settings)
    for host in range(3):
        settings = f'id = {host}\nbind = "{hosts.address(host)}"\nport = 6379\nmemory = "64mb"\n'
        start(hosts.name(host), "node", settings + f'coordinator = ["{coordinator}"]\n')
    yield hosts
    for process, log in running:
        process.terminate()
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def written(hosts, host, count, value):
    """Whether that node takes writes of all keys."""
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
        hosts.heal(0, 1)
    healed = time.monotonic()
    until(lambda: hosts.links(0, 1) >= 2, "the links again", NOTICED_WITHIN)
    print(f"linked again {time.monotonic() - healed:.1f} s after the network was whole")
    until(lambda: all(written(hosts, host, 100, "after") for host in range(3)), "all nodes to take writes")
    print(f"all serve {time.monotonic() - healed:.1f} s after the network was whole")
    for host in range(3):
        client = hosts.client(host)
        assert [client.get(f"half:{n}") for n in range(100)] == ["after"] * 100
        client.close()
