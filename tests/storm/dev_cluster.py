"""The cluster of a storm on loopback: `paritas dev` with its supervisor."""

import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from conftest import BINARY, Cluster, free_base, is_running, make_cluster, until  # noqa: E402, F401
from hosts import Hosts, enter  # noqa: E402, F401


def ordered(*words):
    try:
        done = subprocess.run([BINARY, *words], capture_output=True, text=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        return "no answer"
    return (done.stderr.strip() or f"status {done.returncode}") if done.returncode else ""


def read_store(coordinator, store):
    """A copy of a coordinator's store. The process is stopped meanwhile, so that the copy is consistent."""
    os.kill(coordinator, signal.SIGSTOP)
    try:
        return store.read_bytes()
    finally:
        os.kill(coordinator, signal.SIGCONT)


def replace_store(coordinator, store, content):
    """Gives the next coordinator another store, and returns the present one. The present coordinator ends, and its
    supervisor restarts it."""
    os.kill(coordinator, signal.SIGSTOP)
    before = store.read_bytes()
    copy = store.with_suffix(".copy")
    copy.write_bytes(content)
    copy.replace(store)
    os.kill(coordinator, signal.SIGKILL)
    return before


class DevCluster(Cluster):
    """Adds the operations that only storms need."""

    def __init__(self, directory, shape, memory):
        more = ["--ack-quorum", str(shape.quorum), "--client-coding", "on"]
        more += ["--log-nodes", str(shape.log_nodes), "--log-size", shape.log_size] if shape.log_nodes else []
        super().__init__(directory, nodes=shape.members, log_nodes=shape.log_nodes, scheme=shape.scheme, memory=memory, more=more)

    def any_status(self):
        return self._any_status()

    def addresses(self):
        return [("127.0.0.1", self.port + node) for node in range(self.nodes)]

    def order(self, asked, *words):
        """Runs `paritas` with these words for a node. Returns its error, or nothing."""
        return ordered(*words, "--port", str(self.port + asked))

    def kill_coordinator(self):
        os.kill(until(self.coordinator, "a coordinator"), signal.SIGKILL)

    def store(self):
        return self.directory / "data" / "coordinator.redb"

    def read_store(self):
        return read_store(until(self.coordinator, "a coordinator"), self.store())

    def replace_store(self, content):
        return replace_store(until(self.coordinator, "a coordinator"), self.store(), content)

    def coordinator(self):
        """The coordinator among the children of `dev`; `dev` reports only the first one."""
        return next((pid for pid, words in self.children() if b"coordinator" in words), None)

    def node_processes(self):
        """The running process of each node, by its id."""
        nodes = [(pid, words) for pid, words in self.children() if b"node" in words and b"--id" in words]
        return {int(words[words.index(b"--id") + 1]): pid for pid, words in nodes}

    def children(self):
        """Pairs of process id and command line of the children of `dev`."""
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = (entry / "stat").read_text(encoding="ascii").rsplit(") ", 1)[1].split()[1]
                if int(parent) == self.process.pid:
                    yield int(entry.name), (entry / "cmdline").read_bytes().split(b"\0")
            except (OSError, UnicodeError):
                # The process has ended meanwhile.
                continue
