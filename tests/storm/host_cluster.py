"""The cluster of a storm on separate hosts: network namespaces on a switch that delays, loses and cuts. Nodes are
without a supervisor, and no end is certified. Clients and coordinator share a host."""

import json
import os
import random
import signal
import subprocess
import threading
import time

from dev_cluster import BINARY, Hosts, enter, make_cluster, ordered, read_store, replace_store, until


class HostCluster:
    """Processes by name; `None` is the coordinator. A thread restarts dead processes after a while."""

    def __init__(self, directory, shape, memory):
        self.directory, self.memory = directory, memory
        self.shape, self.nodes = shape, shape.nodes
        self.hosts, self.processes = Hosts(), {}
        # For each absent host, when it returns.
        self.away = {}
        self.ending = threading.Event()
        self.draw = random.Random(directory.name)
        self.log = open(directory / "logs", "ab")
        self.supervisor = threading.Thread(target=self.supervise, daemon=True)
        self.hosts.make(self.nodes)
        try:
            # Moves this process and all clients.
            with open(f"/run/netns/{self.hosts.name(None)}", "rb") as there:
                enter(there)
            for name in [None, *range(self.nodes)]:
                self.start(name)
            until(lambda: self.is_whole() and len(self.pids()) == self.nodes, "all positions live")
        except BaseException:
            self.stop()
            raise
        self.supervisor.start()

    def addresses(self):
        return [(self.hosts.address(node), 6379) for node in range(self.nodes)]

    def start(self, name):
        coordinator = f"{self.hosts.address(None)}:6300"
        # Clients need no password.
        secret = f'secret_file = "{self.directory}/secret"\nopen = true\n'
        if name is None:
            task = "coordinator"
            settings = f'{secret}listen = "{coordinator}"\nstore = "{self.directory}/store"\nscheme = "{self.shape.scheme}"\n'
            settings += f'nodes = {self.shape.members}\nmemory = "{self.memory}"\nack_quorum = {self.shape.quorum}\n'
            settings += f"log_nodes = {self.shape.log_nodes}\n" if self.shape.log_nodes else ""
        else:
            task = "node"
            settings = f'{secret}id = {name}\nbind = "{self.hosts.address(name)}"\nport = 6379\nmemory = "{self.memory}"\n'
            settings += f'coordinator = ["{coordinator}"]\nclient_coding = "on"\n'
            if name >= self.shape.members:
                settings += f'log_dir = "{self.directory}/parity-{name}"\nlog_size = "{self.shape.log_size}"\n'
        file = self.directory / f"{task}-{name}.toml"
        file.write_text(settings, encoding="utf-8")
        if name is None:
            make_cluster(file)
        command = ["ip", "netns", "exec", self.hosts.name(name), BINARY, task, "--config", str(file)]
        self.processes[name] = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def supervise(self):
        """Some processes are restarted at once, some after their leases have ended, some when their hosts return."""
        due = {}
        while not self.ending.is_set():
            now = time.monotonic()
            for name, process in list(self.processes.items()):
                if process.poll() is None:
                    continue
                later = self.draw.choice([0, 0, self.draw.uniform(0, 3)])
                if now >= max(due.setdefault(process.pid, now + later), self.away.get(name, 0)):
                    self.start(name)
            time.sleep(0.02)

    def keep_away(self, name, seconds):
        """Delays its restart if it dies meanwhile."""
        self.away[name] = time.monotonic() + seconds

    def any_status(self):
        for node in range(self.nodes):
            command = [BINARY, "status", "--host", self.hosts.address(node), "--port", "6379", "--json"]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=2, check=False)
            except subprocess.TimeoutExpired:
                continue
            if done.returncode == 0:
                return json.loads(done.stdout)
        return None

    def pids(self):
        return {name: process.pid for name, process in self.processes.items() if name is not None}

    def node_processes(self):
        """The running process of each node, by its id."""
        return {name: process.pid for name, process in list(self.processes.items()) if name is not None and process.poll() is None}

    def is_whole(self):
        status = self.any_status()
        # The process has not registered yet: the coordinator believes that the one before lives.
        known = status and {node["id"]: node["pid"] for node in status["nodes"]} == self.pids()
        return known and all(p["state"] == "live" for entry in status["lists"] for p in entry["positions"])

    def order(self, asked, *words):
        return ordered(*words, "--host", self.hosts.address(asked), "--port", "6379")

    def kill_coordinator(self):
        os.kill(self.processes[None].pid, signal.SIGKILL)

    def coordinator(self):
        process = self.processes[None]
        return process.pid if process.poll() is None else None

    def read_store(self):
        return read_store(until(self.coordinator, "a coordinator"), self.directory / "store")

    def replace_store(self, content):
        return replace_store(until(self.coordinator, "a coordinator"), self.directory / "store", content)

    def way(self, one, other, **what):
        """Sets the delays and losses from one host to the other."""
        self.hosts.way(one, other, **what)

    def heal(self):
        self.hosts.heal()

    def stop(self):
        self.ending.set()
        if self.supervisor.is_alive():
            self.supervisor.join()
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.hosts.remove()
        self.log.close()
