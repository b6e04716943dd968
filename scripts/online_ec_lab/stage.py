"""Hosts whose links have one rate, for what they send and for what they get, and a delay; and the systems on them. Needs
root, /dev/net/tun and a C compiler."""

import pathlib
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts" / "bench")]
from hosts import Hosts, ip  # noqa: E402
import systems  # noqa: E402

PORT = 6379
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


class Stage:
    """Systems on the hosts; one at a time."""

    def __init__(self, links):
        self.links, self.children = links, {}
        self.directory = tempfile.TemporaryDirectory(prefix="online-ec-")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        self.directory.cleanup()

    def start(self, name, host, *command):
        with open(pathlib.Path(self.directory.name, f"log-{name}"), "ab") as log:
            self.children[name] = subprocess.Popen(
                [*self.links.command(host), *command], stdout=log, stderr=log, cwd=self.directory.name
            )

    def end(self):
        for child in self.children.values():
            child.kill()
        for child in self.children.values():
            child.wait()
        self.children.clear()

    def stop(self, servers):
        """Ends these servers as `kill -9` does, or lets nothing of them be heard any more."""
        for server in servers:
            child = self.children.pop(f"server-{server}")
            child.send_signal(signal.SIGKILL)
            child.wait()

    def address(self, host, port=PORT):
        return f"{self.links.address(host)}:{port}"

    def ask(self, host, *words, port=PORT):
        command = [*self.links.command(host), "redis-cli", "-h", self.links.address(host), "-p", str(port), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def paritas(self, servers, scheme, memory, large_from=None):
        """Nodes whose clients may code. Returns their addresses."""
        threshold = f'large_from = "{large_from}"\n' if large_from else ""
        path = pathlib.Path(self.directory.name)
        for old in path.glob("*.toml"):
            old.unlink()
        path.joinpath("store").unlink(missing_ok=True)
        path.joinpath("secret").write_text("a secret of this lab, thirty-two bytes or more\n")
        path.joinpath("secret").chmod(0o600)
        coordinator, common = self.address(0, 6300), f'secret_file = "{path}/secret"\nopen = true\n'
        file = path / "coordinator.toml"
        file.write_text(f'{common}listen = "{coordinator}"\nstore = "{path}/store"\nscheme = "{scheme}"\nnodes = {servers}\n'
                        f'chunk = "4kb"\nmemory = "{memory}"\n')
        subprocess.run([systems.PARITAS, "coordinator", "--config", str(file), "--create"], check=True, capture_output=True)
        self.start("coordinator", 0, systems.PARITAS, "coordinator", "--config", str(file))
        for host in range(servers):
            file = path / f"node-{host}.toml"
            file.write_text(f'{common}id = {host}\nbind = "{self.links.address(host)}"\nport = {PORT}\nmemory = "{memory}"\n'
                            f'coordinator = ["{coordinator}"]\nclient_coding = "on"\n{threshold}')
            self.start(f"server-{host}", host, systems.PARITAS, "node", "--config", str(file))
        systems.until(lambda: self.ask(0, "SET", "ready", "1").startswith("OK"), "a cluster that serves")
        return [self.address(host) for host in range(servers)]

    def memcached(self, servers, megabytes):
        """Stock memcached on each host. Returns their addresses."""
        for host in range(servers):
            words = ["-u", "root", "-l", self.links.address(host), "-p", str(PORT), "-U", "0", "-m", str(megabytes), "-I", "4m"]
            self.start(f"server-{host}", host, "memcached", *words)
        for host in range(servers):
            probe = [*self.links.command(host), "bash", "-c", f"exec 3<>/dev/tcp/{self.links.address(host)}/{PORT}"]
            systems.until(lambda probe=probe: subprocess.run(probe, capture_output=True, check=False).returncode == 0, "memcached")
        return [self.address(host) for host in range(servers)]

    def valkey(self, hosts, primaries):
        """Primaries on the first of the hosts, and two replicas of each on those behind it. Returns their addresses."""
        step = 3 if primaries == 2 else 1
        for primary in range(primaries):
            for copy in range(3):
                host, port = (primary * step + copy) % hosts, PORT + primary
                words = ["--port", str(port), "--bind", self.links.address(host), "--save", "", "--appendonly", "no"]
                words += ["--protected-mode", "no", "--repl-diskless-sync-delay", "0"]
                words += ["--replicaof", self.links.address(primary * step), str(port)] if copy else []
                self.start(f"server-{host}-{port}", host, systems.valkey_binary(), *words)
        for primary in range(primaries):
            asked = (primary * step, "INFO", "replication")
            systems.until(lambda asked=asked, port=PORT + primary: "connected_slaves:2" in self.ask(*asked, port=port), "two replicas")
        return [self.address(primary * step, PORT + primary) for primary in range(primaries)]
