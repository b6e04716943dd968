"""Hosts on this machine: network namespaces on a switch process, which can delay, lose and cut frames between them.
Needs root, /dev/net/tun and a C compiler."""

import contextlib
import ctypes
import os
import pathlib
import subprocess
import tempfile

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from conftest import TIMEOUT_S

NET = "10.77.0"
SWITCH = pathlib.Path(__file__).with_name("switch.c")


def enter(namespace):
    """Moves this thread into a namespace. (Python has `os.setns` only since 3.12.)"""
    if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def ip(*arguments, commands=None):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, input=commands)


class Hosts:
    """Hosts by number. `None` is the host of the tests and the coordinator."""

    def __init__(self):
        self.prefix = f"paritas{os.getpid()}"
        self.count = 0
        self.switch = None
        self.changed = set()

    def make(self, count):
        self.count = count
        everybody = [*range(count), None]
        for host in everybody:
            ip("netns", "add", self.name(host))
        with tempfile.TemporaryDirectory() as directory:
            binary = f"{directory}/switch"
            subprocess.run(["cc", "-O2", "-o", binary, str(SWITCH)], check=True, capture_output=True, text=True)
            command = [binary, *map(self.name, everybody)]
            self.switch = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.expect("ready")
        for host in everybody:
            others = [other for other in everybody if other != host]
            lines = [
                "link set lo up",
                f"link set eth0 address {self.hardware_address(host)}",
                "link set eth0 mtu 9000 up",
                f"addr add {self.address(host)}/24 dev eth0",
                # Addresses are configured in advance, so that a cut path is silent and does not give an error from
                # address resolution.
                *(f"neigh replace {self.address(h)} lladdr {self.hardware_address(h)} nud permanent dev eth0" for h in others),
            ]
            ip("-n", self.name(host), "-batch", "-", commands="\n".join(lines) + "\n")

    def expect(self, word):
        said = self.switch.stdout.readline().strip()
        if said != word:
            raise OSError(f"the switch answered {said!r} instead of {word!r}")

    def name(self, host):
        return f"{self.prefix}{'s' if host is None else f'h{host}'}"

    def number(self, host):
        return self.count if host is None else host

    def hardware_address(self, host):
        return f"02:00:00:00:00:{self.number(host):02x}"

    def address(self, host):
        return f"{NET}.{254 if host is None else host + 1}"

    def way(self, one, other, delay=0.0, jitter=0.0, loss=0.0):
        """Sets what happens to frames from `one` to `other` from now on: delay in seconds, random addition in seconds,
        and share lost. Frames in the other direction are not affected."""
        rule = (self.number(one), self.number(other), 1e6 * delay, 1e6 * jitter, loss)
        print(*rule, file=self.switch.stdin, flush=True)
        self.expect("ok")
        self.changed.add((one, other))

    def cut(self, one, other):
        """Drops all frames between the two: no reset, no error, silence."""
        self.way(one, other, loss=1)
        self.way(other, one, loss=1)

    def heal(self):
        for one, other in list(self.changed):
            self.way(one, other)
        self.changed.clear()

    def links(self, here, there):
        """Number of connections with `there` that are established as seen by `here`."""
        wanted = ["ss", "-Htn", "state", "established", "dst", self.address(there)]
        done = subprocess.run(["ip", "netns", "exec", self.name(here), *wanted], check=True, capture_output=True, text=True)
        return len(done.stdout.splitlines())

    @contextlib.contextmanager
    def standing(self, name):
        """New sockets of this thread are made in that namespace."""
        with open("/proc/thread-self/ns/net", "rb") as home, open(f"/run/netns/{name}", "rb") as there:
            enter(there)
            try:
                yield
            finally:
                enter(home)

    def client(self, host):
        """A client whose only connection is made now, from the host of the tests."""
        with self.standing(self.name(None)):
            return redis.Redis(
                host=self.address(host),
                socket_timeout=TIMEOUT_S,
                decode_responses=True,
                single_connection_client=True,
                retry=Retry(NoBackoff(), 0),
            )

    def remove(self):
        if self.switch is not None:
            self.switch.stdin.close()
            self.switch.wait()
            self.switch.stdout.close()
        for host in [*range(self.count), None]:
            subprocess.run(["ip", "netns", "del", self.name(host)], check=False, capture_output=True)
