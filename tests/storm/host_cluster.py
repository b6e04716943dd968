"""The cluster of a storm on hosts of their own: network namespaces on one bridge, nodes started by hand, nobody who certifies
their ends. Clients and coordinator stand on the bridge."""

import json
import os
import random
import signal
import subprocess
import threading
import time

from dev_cluster import BINARY, Hosts, enter, ip, until

# Packets to this address reach nobody: no reset, no error, silence.
NOBODY = ("lladdr", "02:00:00:00:00:99", "nud", "permanent")


class HostCluster:
    """Processes by name: `None` is the coordinator. A thread starts what has died again, after a while."""

    def __init__(self, directory, nodes=6, scheme="4+2", memory="256mb"):
        self.directory, self.nodes, self.memory = directory, nodes, memory
        self.scheme = scheme
        self.hosts, self.processes, self.cuts = Hosts(), {}, []
        self.ending = threading.Event()
        self.draw = random.Random(directory.name)
        self.log = open(directory / "logs", "ab")
        self.hosts.make(nodes)
        try:
            # This process and all clients: on the bridge.
            with open(f"/run/netns/{self.hosts.switch}", "rb") as there:
                enter(there)
            for name in [None, *range(nodes)]:
                self.start(name)
            until(lambda: self.is_whole() and len(self.pids()) == nodes, "all positions live")
        except BaseException:
            self.stop()
            raise
        self.supervisor = threading.Thread(target=self.supervise, daemon=True)
        self.supervisor.start()

    def address(self, name):
        return "10.77.0.254" if name is None else self.hosts.address(name)

    def addresses(self):
        return [(self.address(node), 6379) for node in range(self.nodes)]

    def start(self, name):
        coordinator = f"{self.address(None)}:26379"
        if name is None:
            task, at = "coordinator", self.hosts.switch
            settings = f'listen = "{coordinator}"\nstore = "{self.directory}/store"\nscheme = "{self.scheme}"\n'
            settings += f'nodes = {self.nodes}\nmemory = "{self.memory}"\n'
        else:
            task, at = "node", self.hosts.name(name)
            settings = f'id = {name}\nbind = "{self.address(name)}"\nport = 6379\nmemory = "{self.memory}"\n'
            settings += f'coordinator = ["{coordinator}"]\n'
        file = self.directory / f"{task}-{name}.toml"
        file.write_text(settings, encoding="utf-8")
        command = ["ip", "netns", "exec", at, BINARY, task, "--config", str(file)]
        self.processes[name] = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def supervise(self):
        """Some come back at once, some after their leases are over."""
        while not self.ending.is_set():
            for name, process in list(self.processes.items()):
                if process.poll() is not None:
                    time.sleep(self.draw.choice([0, 0, self.draw.uniform(0, 3)]))
                    if not self.ending.is_set():
                        self.start(name)
            time.sleep(0.02)

    def any_status(self):
        for node in range(self.nodes):
            command = [BINARY, "status", "--host", self.address(node), "--port", "6379", "--json"]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=2, check=False)
            except subprocess.TimeoutExpired:
                continue
            if done.returncode == 0:
                return json.loads(done.stdout)
        return None

    def pids(self):
        return {name: process.pid for name, process in self.processes.items() if name is not None}

    def is_whole(self):
        status = self.any_status()
        # A life that has not registered yet: the coordinator takes the one before for alive.
        known = status and {node["id"]: node["pid"] for node in status["nodes"]} == self.pids()
        return known and all(p["state"] == "live" for entry in status["lists"] for p in entry["positions"])

    def kill_coordinator(self):
        os.kill(self.processes[None].pid, signal.SIGKILL)

    def cut(self, one, other):
        """What the one sends the other goes to nobody."""
        at = self.hosts.switch if one is None else self.hosts.name(one)
        device = "br0" if one is None else "eth0"
        ip("-n", at, "neigh", "replace", self.address(other), *NOBODY, "dev", device)
        self.cuts.append((at, self.address(other), device))

    def heal(self):
        while self.cuts:
            at, address, device = self.cuts.pop()
            ip("-n", at, "neigh", "del", address, "dev", device)

    def stop(self):
        self.ending.set()
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.hosts.remove()
        self.log.close()
