"""Hosts whose links have one rate, for what they send and for what they get, and a delay. Needs root, /dev/net/tun and a C
compiler."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]
from hosts import Hosts, ip  # noqa: E402

# Of a token bucket: longer than the longest frame (MTU 9000).
BURST = "32kb"
QUEUE_MS = 50


class Links:
    """Hosts 0 to `count` - 1. A switch process delays their frames (tests/switch.c). Each host is behind a bridge whose two
    ends limit the rate, one for each direction."""

    def __init__(self, count):
        self.count, self.hosts = count, Hosts()

    def __enter__(self):
        try:
            self.hosts.make(self.count)
            for host in range(self.count):
                self._put_behind_bridge(host)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for host in range(self.count):
            subprocess.run(["ip", "netns", "del", self.name(host)], check=False, capture_output=True)
        self.hosts.remove()

    def name(self, host):
        return self.hosts.name(host) + "i"

    def address(self, host):
        return self.hosts.address(host)

    def command(self, host):
        """What to put before a command that is to run on the host."""
        return ["ip", "netns", "exec", self.name(host)]

    def _put_behind_bridge(self, host):
        gate, inner = self.hosts.name(host), self.name(host)
        ip("netns", "add", inner)
        lines = [
            "addr flush dev eth0",
            # The host's own address is that of its end of the pair.
            f"link set eth0 address 02:00:00:00:01:{host:02x}",
            "link add br0 type bridge",
            f"link add gate0 type veth peer name eth0 netns {inner}",
            "link set eth0 master br0",
            "link set gate0 master br0",
            *(f"link set {device} mtu 9000 up" for device in ("br0", "gate0")),
        ]
        ip("-n", gate, "-batch", "-", commands="\n".join(lines) + "\n")
        others = [other for other in [*range(self.count), None] if other != host]
        lines = [
            "link set lo up",
            f"link set eth0 address {self.hosts.hardware_address(host)}",
            "link set eth0 mtu 9000 up",
            f"addr add {self.address(host)}/24 dev eth0",
            *(f"neigh replace {self.address(h)} lladdr {self.hosts.hardware_address(h)} nud permanent dev eth0" for h in others),
        ]
        ip("-n", inner, "-batch", "-", commands="\n".join(lines) + "\n")

    def shape(self, mbit, delay_ms):
        """What each host sends, and what is sent to it, goes at this rate from now on, and is late by this time. None: no
        limit."""
        for host in range(self.count):
            for namespace, device in ((self.hosts.name(host), "gate0"), (self.name(host), "eth0")):
                words = ["tc", "-n", namespace, "qdisc", "replace", "dev", device, "root"]
                words += ["tbf", "rate", f"{mbit}mbit", "burst", BURST, "latency", f"{QUEUE_MS}ms"] if mbit else ["pfifo"]
                subprocess.run(words, check=True, capture_output=True)
            for other in range(self.count):
                if other != host:
                    self.hosts.way(host, other, delay=(delay_ms or 0) / 1e3)
