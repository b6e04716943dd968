"""A cluster of real processes for tests. It uses free ports and is ended in any case."""

import contextlib
import functools
import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

BINARY = os.environ.get("PARITAS_BIN", "target/release/paritas")
# Longest wait on a busy machine, in seconds. Without errors nothing waits that long.
TIMEOUT_S = 60.0
# Ports of one test process: `own_ports`.
BLOCK = 100


class Background(threading.Thread):
    """Does its `work` until `ending` is set. `stop` raises an error that occurred in it."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ending, self.broken = threading.Event(), None

    def run(self):
        try:
            self.work()
        except Exception as error:  # pylint: disable=broad-except
            self.broken = error

    def work(self):
        raise NotImplementedError

    def stop(self):
        self.ending.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive() and self.broken is None, self.broken


def until(condition, what, timeout_s=TIMEOUT_S):
    """Polls until `condition` returns a true value, and returns it. `what`: what is waited for, or a function that says it."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what() if callable(what) else what}"
        time.sleep(0.005)


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@functools.cache
def own_ports():
    """Ports in turn, without end, of a block that belongs to this process until it ends. Between finding a port free and
    using it, another test process could take it. So each claims a block, by an abstract socket with the block's name.
    Such names, like ports, are those of the network namespace."""
    for first in range(10_000, 11_000, BLOCK):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0paritas-test-ports-{first}")
        except OSError:
            claim.close()
            continue
        # Open until the process ends.
        claim.detach()
        return itertools.cycle(range(first, first + BLOCK))
    raise RuntimeError(f"{1_000 // BLOCK} test processes have all ports: run fewer at a time")


def free_base(count):
    """A port from which all derived ports are free: 1,000 above it for cluster-aware clients, 2,000 for those of memcached, and for clusters by hand 10,000
    and 20,000 above it for the other nodes and the coordinator. All are below those that the system gives to clients."""
    for _ in range(2 * BLOCK):
        base = next(own_ports())
        ports = [base + offset + i for i in range(count) for offset in (0, 1_000, 2_000, 10_000)]
        if base % BLOCK + count <= BLOCK and all(map(is_free, ports + [base + 20_000])):
            # The next draw gives other ports, also if these are not in use yet.
            for _ in range(count - 1):
                next(own_ports())
            return base
    raise RuntimeError("no free ports")


def is_running(pid):
    """Whether the process exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(") ", 1)[1][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextlib.contextmanager
def standing_still(*pids):
    """These processes stand still within it."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


class Cluster:
    """`paritas dev` and its processes."""

    def __init__(self, directory, nodes=6, scheme="4+2", memory="128mb", spares=0, log_nodes=0, policy=None, binary=BINARY, more=()):
        self.directory = directory
        self.binary = binary
        self.more = more
        self.nodes = nodes + spares + log_nodes
        self.port = free_base(self.nodes)
        self.output = directory / "dev.out"
        self.process = self._start(nodes, scheme, memory, spares, policy)
        try:
            until(lambda: self._is_ready() or self.process.poll() is not None, "ready")
            assert self._is_ready(), f"dev did not become ready:\n{self.text()}"
        except BaseException:
            self.stop()
            raise

    def _start(self, nodes, scheme, memory, spares, policy):
        arguments = ["--nodes", str(nodes), "--scheme", scheme, "--memory", memory, "--spares", str(spares)]
        arguments += ["--port", str(self.port), "--dir", str(self.directory / "data")]
        arguments += ["--maxmemory-policy", policy] if policy else []
        with open(self.output, "w", encoding="utf-8") as output:
            return subprocess.Popen([self.binary, "dev", *arguments, *self.more], stdout=output, stderr=subprocess.STDOUT)

    def text(self):
        return self.output.read_text(encoding="utf-8")

    def _is_ready(self):
        return any(line.startswith("ready") for line in self.text().splitlines())

    def client(self, node=0, **options):
        """A stock client of one node that never retries."""
        options = {"socket_timeout": TIMEOUT_S, "decode_responses": True, **options}
        return redis.Redis(port=self.port + node, retry=Retry(NoBackoff(), 0), **options)

    def socket(self, node=0, offset=0):
        return socket.create_connection(("127.0.0.1", self.port + offset + node), timeout=TIMEOUT_S)

    def peer_socket(self, node):
        """As another node connects."""
        return self._connect(self.any_status()["nodes"][node]["peer_address"])

    def secret(self):
        return (self.directory / "data" / "secret").read_bytes().strip()

    def coordinator_socket(self):
        return self._connect(self.any_status()["coordinator_address"])

    @staticmethod
    def _connect(address):
        host, port = address.rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)

    def status(self, node=0):
        """What a node says, once it can."""
        return until(lambda: self._status(node), "a status")

    def _status(self, node):
        command = [BINARY, "status", "--port", str(self.port + node), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def pids(self):
        """The process id of each node, from any node that answers."""
        return {node["id"]: node["pid"] for node in self.any_status()["nodes"]}

    def any_status(self):
        """What any node says, once one can."""
        return until(self._any_status, "a node that answers")

    def _any_status(self):
        return next(filter(None, map(self._status, range(self.nodes))), None)

    def is_whole(self):
        status = self._any_status()
        return status and all(p["state"] == "live" for entry in status["lists"] for p in entry["positions"])

    def kill(self, *nodes):
        """Kills nodes at once: all stand still before the first one ends, so that none of them helps to replace another.
        Returns their process ids."""
        pids = self.pids()
        ended = [pids[node] for node in nodes]
        for how in signal.SIGSTOP, signal.SIGKILL:
            for pid in ended:
                os.kill(pid, how)
        return ended

    @staticmethod
    def kill_process(pid):
        os.kill(pid, signal.SIGKILL)

    def until_replaced(self, dead, timeout_s=TIMEOUT_S):
        """Waits until other processes have replaced the dead ones and all positions are Live."""
        until(lambda: not set(dead) & set(self.pids().values()) and self.is_whole(), "all positions live", timeout_s)

    def processes(self):
        """Every process that `dev` has named."""
        return [int(pid) for pid in re.findall(r"^(?:n\d+|coordinator)\s+(\d+)", self.text(), re.MULTILINE)]

    def coordinator_pid(self):
        return int(re.findall(r"^coordinator\s+(\d+)", self.text(), re.MULTILINE)[-1])

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def logs(self):
        return "\n".join(f"== {log.name}\n{log.read_text()}" for log in sorted((self.directory / "data").glob("*.log")))


@pytest.fixture
def start_cluster(tmp_path, request):
    """Starts clusters with the test's options."""
    running = []

    def start(**options):
        directory = tmp_path / f"cluster-{len(running)}"
        directory.mkdir()
        running.append(Cluster(directory, **options))
        return running[-1]

    yield start
    for cluster in running:
        cluster.stop()
        if getattr(request.node, "failed", False):
            print(cluster.text(), cluster.logs())


def answers(port):
    """Whether the port of a node answers."""
    try:
        return redis.Redis(port=port, socket_timeout=5).ping()
    except redis.RedisError:
        return False


def serves(port):
    """Whether a node answers commands about keys."""
    try:
        redis.Redis(port=port, socket_timeout=5).get("anything")
        return True
    except redis.RedisError:
        return False


def is_refused(reply):
    """Whether the command was refused before anything was done, for a reason other than memory. redis-py removes some
    prefixes."""
    words = ("NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "LOADING")
    known = (redis.exceptions.TryAgainError, redis.exceptions.ClusterDownError, redis.exceptions.BusyLoadingError)
    return isinstance(reply, known) or str(reply).startswith(words)


def once_served(ask, passes=is_refused):
    """What `ask` returns, once it is not refused: on a busy machine a takeover may take longer than a command waits.
    `passes`: whether an error is such a refusal."""
    refusals = []

    def asked():
        try:
            return [ask()]
        except redis.RedisError as error:
            if not passes(error):
                raise
            refusals[:] = [error]
            return None

    return until(asked, lambda: f"an answer other than {refusals}")[0]


def once_done(write):
    """What `write` returns, once it is certain to be done. It may be done several times. On a busy machine a node may stand
    still until it is replaced: its commands are uncertain, and its clients are disconnected."""

    def passes(error):
        return isinstance(error, redis.ConnectionError) or is_refused(error) or str(error).startswith("UNCERTAIN")

    return once_served(write, passes)


def pipelined(client, fill):
    """The replies to the commands that `fill` puts into a pipeline, as `once_done`."""

    def run():
        with client.pipeline(transaction=False) as pipe:
            fill(pipe)
            # redis-py would put words before the message of an error that it raises.
            replies = pipe.execute(raise_on_error=False)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    return once_done(run)


def set_all(client, values):
    """Sets keys in a pipeline, as `once_done`."""
    assert all(pipelined(client, lambda pipe: [pipe.set(key, value) for key, value in values.items()]))


def make_cluster(file):
    """Creates the cluster of a coordinator's settings, unless its store exists. If this fails, the coordinator will
    report the reason."""
    store = re.search(r'^store = "(.*)"', file.read_text(encoding="utf-8"), re.MULTILINE)
    if store and not os.path.exists(store[1]):
        command = [BINARY, "coordinator", "--config", str(file), "--create"]
        subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)


@pytest.fixture
def run(tmp_path):
    """Starts processes of the binary, each with a settings file and, if given, inside the command `inside`. Ends them
    afterwards."""
    running = []

    def start(task, settings, inside=(), create=True, **options):
        file = tmp_path / f"{task}-{len(running)}.toml"
        file.write_text(settings, encoding="utf-8")
        if create and task == "coordinator":
            make_cluster(file)
        log = open(file.with_suffix(".log"), "w", encoding="utf-8")
        command = [*inside, BINARY, task, "--config", str(file)]
        process = subprocess.Popen(command, stdout=log, stderr=log, **options)
        process.log = file.with_suffix(".log")
        running.append((process, log))
        return process

    yield start
    for process, log in running:
        # Nodes wait for permission to end (P10.20).
        process.kill()
        process.wait()
        log.close()


@pytest.fixture
def make_hosts():
    """Makes hosts in network namespaces. Where these are not available, the test is skipped."""
    from hosts import Hosts

    made = Hosts()

    def make(count):
        try:
            made.make(count)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"hosts cannot be had here: {getattr(error, 'stderr', '') or error}")
        return made

    yield make
    made.remove()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """A 4+2 cluster shared by tests, which use keys of their own and kill nothing."""
    shared = Cluster(tmp_path_factory.mktemp("shared"))
    yield shared
    shared.stop()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    report = (yield).get_result()
    if report.when == "call" and report.failed:
        item.failed = True


@pytest.fixture
def rng(request):
    """Random numbers. The seed is printed when the test fails."""
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"SEED={seed} for {request.node.name}")
    return random.Random(seed)
