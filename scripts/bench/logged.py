"""Redundancy on disk compared with all redundancy in memory, `6+3/2` and `6+3` (LogECMem's trade-off): memory, CPU time
and latency of updates."""

import statistics
import subprocess

import systems

KEYS, VALUE = 200_000, 1000
ROUNDS, OPERATIONS = 5, 100_000
# Updates a second for measuring latency: well below what the machine can do.
RATE = 4_000
# Enough that no node lacks memory, but small enough that the log wraps around.
OPTIONS = ("--log-size", "1gb")


def both():
    """Numbers of nodes with memory; log nodes are additional."""
    return systems.Paritas("6+3", 9), systems.Paritas("6+3/2", 7, options=OPTIONS, log_nodes=2)


def updates(system, *more):
    command = [systems.LOAD, "run", "--port", str(system.port), "--cluster", "--zipf", "0.99", "--keys", str(KEYS)]
    command += ["--value", str(VALUE), "--op", "set", *map(str, more)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(field.split("=") for field in done.stdout.split())


def measure(say):
    """Rows by scheme. CPU time and latency are measured in turns, so that disturbances affect both."""
    rows = [{"system": system.name, "cpu_us": [], "p50_us": [], "p95_us": []} for system in both()]
    one, other = both()
    with one, other:
        for system, row in zip((one, other), rows):
            empty = system.served_once()
            system.fill(0, KEYS, VALUE)
            row["bytes"] = (system.settled_resident() - empty) / KEYS
            row["kinds"] = {kind: amount / KEYS for kind, amount in system.counted(KEYS)["by_kind"].items()}
            say(f"{system.name}: {row['bytes']:.0f} B of memory per object")
        for _ in range(ROUNDS):
            for system, row in zip((one, other), rows):
                before = system.cpu_us()
                updates(system, "--operations", OPERATIONS)
                row["cpu_us"].append((system.cpu_us() - before) / OPERATIONS)
                told = updates(system, "--operations", RATE * 5, "--rate", RATE)
                row["p50_us"].append(float(told["p50_us"]))
                row["p95_us"].append(float(told["p95_us"]))
    for row in rows:
        for what in ("cpu_us", "p50_us", "p95_us"):
            row[what] = statistics.median(row[what])
        say(f"{row['system']}: {row['cpu_us']:.1f} us of CPU an update, p50 {row['p50_us']:.0f} us, p95 {row['p95_us']:.0f} us")
    return rows
