"""CPU-µs per operation: the CPU time of all server processes, divided by the operations. Median of three alternating
runs."""

import statistics
import subprocess

import systems

KEYS = 1_000_000
# Number of these keys that get a value of 1 KiB.
LARGE = 200_000
RUNS = 3
# Operations of one run for each pipeline depth: about a second each.
OPERATIONS = {1: 50_000, 16: 300_000, 64: 800_000}
# redis-benchmark fills in twelve digits, which gives the keys that `load` has filled, of 24 bytes.
KEY = "key:00000000__rand_int__"
# With the tag of the right node filled in ("{06S}"), also 24 bytes. There is one tag for each node, so this reaches one
# slot of each node and so one stream. `load` reaches all.
TAGGED = "key:{tag}:00__rand_int__"
# A value that changes each time: a write that changes nothing would be cheaper.
CHANGING = "__rand_int____rand_int__"
# The slot of this tag, 15495, belongs to one node. Keys with the tag reach that node directly or through another.
ONE_SLOT = "key:{a}0000000__rand_int__"


def benchmark(port, command, clients=50, pipeline=1, operations=None, numbers=KEYS, cluster=False):
    """Runs stock redis-benchmark. Also returns its command line, for the report."""
    operations = operations or OPERATIONS[pipeline]
    arguments = ["-p", str(port), "-c", str(clients), "-P", str(pipeline), "-n", str(operations), "-r", str(numbers)]
    arguments += ["--cluster"] * cluster + ["-q", *command]
    done = subprocess.run(["redis-benchmark", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0 or "rror" in done.stdout + done.stderr:
        raise SystemExit(f"bench: redis-benchmark {' '.join(arguments)}:\n{done.stdout[-500:]}{done.stderr[-500:]}")
    return operations


def load(system, operation, pipeline, clients=50, value=32, wait="no", operations=None, keys=KEYS):
    operations = operations or OPERATIONS[pipeline]
    command = [systems.LOAD, "run", "--port", str(system.port), "--op", operation, "--connections", str(clients)]
    command += ["--pipeline", str(pipeline), "--value", str(value), "--keys", str(keys), "--wait", wait]
    command += ["--operations", str(operations)] + ["--memcached"] * system.memcached + ["--cluster"] * system.cluster
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(command)}:\n{done.stderr}")
    return operations


def get_or_set(system, operation, pipeline, value=32, clients=50):
    """One run, with the program that suits the system."""
    keys = KEYS if value <= 100 else LARGE
    if system.memcached:
        return load(system, operation, pipeline, clients, value, keys=keys)
    key, numbers = (TAGGED, keys // system.nodes) if system.cluster else (KEY, keys)
    command = ["get", key] if operation == "get" else ["set", key, CHANGING + "x" * (value - len(CHANGING))]
    # With 4 clients, a run at pipeline 1 takes longer.
    operations = OPERATIONS[pipeline] // (2 if clients < 50 or value > 100 else 1)
    return benchmark(system.port, command, clients, pipeline, operations, numbers, system.cluster)


class Table:
    """Cells by (operation, system). Each is the median of alternating runs."""

    def __init__(self, say):
        self.cells, self.spread, self.say = {}, {}, say

    def alternate(self, operation, contenders, runs=RUNS):
        """Runs `contenders` in turn: each is a system with a function that runs it."""
        each = {}
        for _ in range(runs):
            for name, system, run in contenders:
                before = system.cpu_us()
                operations = run()
                each.setdefault(name, []).append((system.cpu_us() - before) / operations)
        for name, figures in each.items():
            self.cells[operation, name] = statistics.median(figures)
            self.spread[operation, name] = (min(figures), max(figures))
        self.say(f"{operation}: " + ", ".join(f"{name} {statistics.median(f):.2f}" for name, f in each.items()))


def one_shard(table):
    """One process with one copy of the data."""
    with systems.ours("1+0") as ours, systems.valkey() as valkey, systems.redis() as redis, systems.Memcached() as mc:
        everyone = [ours, valkey, redis, mc]
        for system in everyone:
            system.fill(0, KEYS, 32)
        for operation in ("get", "set"):
            for pipeline in OPERATIONS:
                runs = [(s.name, s, lambda s=s: get_or_set(s, operation, pipeline)) for s in everyone]
                table.alternate(f"{operation.upper()} 32 B, pipeline {pipeline}", runs)
        for system in everyone:
            system.fill(0, LARGE, 1024)

        def large(system):
            # Keys that have a large value.
            if system.memcached:
                return load(system, "get", 16, keys=LARGE)
            return benchmark(system.port, ["get", KEY], 50, 16, numbers=LARGE)

        runs = [(s.name, s, lambda s=s: large(s)) for s in everyone]
        table.alternate("GET 1 KiB, pipeline 16", runs)


# Name, clients, pipeline, value bytes.
WRITES = [
    ("SET 32 B to all copies, pipeline 1", 50, 1, 32),
    ("SET 32 B to all copies, pipeline 16", 50, 16, 32),
    ("SET 32 B to all copies, pipeline 64", 50, 64, 32),
    ("SET 32 B, 4 connections, pipeline 1", 4, 1, 32),
    ("SET 1000 B, pipeline 16", 50, 16, 1000),
]


def replicated(table):
    """Writes that survive the loss of two processes, or of one."""
    with (
        systems.ours("4+2") as two,
        systems.ours("4+1") as one,
        systems.valkey(2) as replicas,
        systems.valkey(1) as replica,
    ):
        plain = [two, one, replicas, replica]
        for system in plain:
            system.fill(0, KEYS, 32)
            for _ in range(2 * system.cluster):
                get_or_set(system, "set", 64)
        for pipeline in OPERATIONS:
            runs = [(s.name, s, lambda s=s: get_or_set(s, "get", pipeline)) for s in plain]
            runs += [(f"{s.name}, all slots", s, lambda s=s: load(s, "get", pipeline)) for s in (two, replicas)]
            table.alternate(f"GET 32 B, pipeline {pipeline}, replicated", runs)
        for name, clients, pipeline, value in WRITES:
            # Values of the new size are written before the measurement: a system that grows pays for new memory.
            for system in plain * (4 * (value > 100)):
                get_or_set(system, "set", 64, value)
            runs = [(s.name, s, lambda s=s: get_or_set(s, "set", pipeline, value, clients)) for s in plain]
            # A WAIT takes long, so there are fewer of them.
            few = {1: 25_000, 16: 80_000, 64: 100_000}[pipeline]

            def other(system, wait="no"):
                """Uses keys of all slots, and WAIT; redis-benchmark can send neither."""
                operations = few if wait == "each" else None
                keys = KEYS if value <= 100 else LARGE
                return load(system, "set", pipeline, clients, value, wait, operations, keys)

            runs += [(f"{s.name}, all slots", s, lambda s=s: other(s)) for s in plain if value == 32]
            runs += [(f"{replicas.name}, WAIT 2 each", replicas, lambda: other(replicas, "each"))]
            if pipeline > 1:
                runs += [(f"{replicas.name}, WAIT 2 a batch", replicas, lambda: other(replicas, "batch"))]
            table.alternate(name, runs)


def forwarded(table):
    """GETs of one node's keys: at that node, and through another."""
    with systems.ours("4+2") as system:
        owner, other = owner_of_one_slot(system)
        benchmark(owner, ["set", ONE_SLOT, "x" * 32], pipeline=64, operations=300_000, numbers=100_000)
        for pipeline in (1, 16):
            def get(port):
                return benchmark(port, ["get", ONE_SLOT], pipeline=pipeline, numbers=100_000)

            runs = [("at its owner", system, lambda: get(owner)), ("through another node", system, lambda: get(other))]
            table.alternate(f"GET 32 B, pipeline {pipeline}, 4+2", runs)


def latency(say):
    """p50 and p99 of a write that survives two losses, at half the rate that the slower system can do."""
    with systems.ours("4+2") as ours, systems.valkey(2) as valkey:
        contenders = [(ours, "no"), (valkey, "each")]
        for system, _ in contenders:
            system.fill(0, LARGE, 32)

        def run(system, wait, operations, rate=None):
            command = [systems.LOAD, "run", "--port", str(system.port), "--op", "set", "--wait", wait]
            command += ["--keys", str(LARGE), "--operations", str(operations)] + ["--cluster"] * system.cluster
            command += ["--rate", str(rate)] if rate else []
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            return {key: float(value) for key, value in (field.split("=") for field in done.stdout.split())}

        rate = min(run(system, wait, 50_000)["per_second"] for system, wait in contenders) / 2
        found = {system.name: [] for system, _ in contenders}
        for _ in range(RUNS):
            for system, wait in contenders:
                found[system.name].append(run(system, wait, int(5 * rate), rate))
        rows = []
        for (name, each), wait in zip(found.items(), ("", ", SET + WAIT 2")):
            row = {"system": name + wait, "rate": rate}
            row |= {p: round(statistics.median(r[p + "_us"] for r in each)) for p in ("p50", "p99")}
            rows.append(row)
            say(f"{row['system']}: p50 {row['p50']} us, p99 {row['p99']} us at {rate:.0f} SETs per second")
        return rows


def owner_of_one_slot(system):
    """The any-key ports of the node that owns ONE_SLOT's slot, and of another."""
    key = ONE_SLOT.replace("__rand_int__", "0")
    done = subprocess.run(["redis-cli", "-p", str(system.port), "get", key], capture_output=True, text=True, check=True)
    moved = done.stdout.strip().startswith("MOVED")
    owner = int(done.stdout.strip().rsplit(":", 1)[1]) - 1_000 if moved else system.any_port
    return owner, next(port for port in range(system.any_port, system.any_port + system.nodes) if port != owner)
