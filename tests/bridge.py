"""Hosts on this machine whose links have a rate: network namespaces on a kernel bridge, shaped by tbf. Needs root."""

import os
import subprocess

NET = "10.78.0"
LATENCY_MS = 50
BURST = "32kb"


def run(*words):
    subprocess.run(words, check=True, capture_output=True, text=True)


class Bridge:
    """Hosts 0 to `count` - 1. The bridge has a namespace of its own, so nothing touches the machine's network."""

    def __init__(self, count):
        self.count = count
        self.prefix = f"pb{os.getpid()}"
        self.made = []

    def __enter__(self):
        try:
            return self.make()
        except BaseException:
            self.remove()
            raise

    def __exit__(self, *_):
        self.remove()

    def name(self, host):
        return f"{self.prefix}h{host}"

    @staticmethod
    def address(host):
        return f"{NET}.{host + 1}"

    def command(self, host):
        """What to put before a command that is to run on the host."""
        return ["ip", "netns", "exec", self.name(host)]

    def make(self):
        switch = f"{self.prefix}sw"
        self._namespace(switch)
        run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "br0", "up")
        for host in range(self.count):
            name, port = self.name(host), f"v{host}"
            self._namespace(name)
            run("ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", switch)
            run("ip", "-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", switch, "link", "set", port, "master", "br0")
            run("ip", "-n", switch, "link", "set", port, "up")
        return self

    def rate(self, host, bits):
        """What the host sends, and what is sent to it, goes at this rate from now on."""
        for namespace, device in ((self.name(host), "eth0"), (f"{self.prefix}sw", f"v{host}")):
            run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{int(bits)}bit",
                "burst", BURST, "latency", f"{LATENCY_MS}ms")

    def remove(self):
        for name in self.made:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def _namespace(self, name):
        run("ip", "netns", "add", name)
        self.made.append(name)
