"""The cost of reads that other nodes confirm each turn, compared with reads under leases: GETs on a `2+1` cluster of
three processes, from one program. CPU time is that of all nodes. Run from the repository's root after `make bench` has
built the binaries:

    PARITAS_BIN=target/release/paritas LOAD=target/release/examples/load python scripts/bench/reads.py
"""

import os
import re
import subprocess
import time

PARITAS, LOAD = os.environ["PARITAS_BIN"], os.environ["LOAD"]
KEYS, ROUNDS, PORT = 20_000, 3, 17_000
TICKS = os.sysconf("SC_CLK_TCK")


def run(*arguments):
    return subprocess.run([LOAD, *map(str, arguments)], capture_output=True, text=True, check=False)


def cpu_seconds(parent):
    children = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True, check=True).stdout.split()
    fields = [open(f"/proc/{pid}/stat", encoding="ascii").read().rsplit(")", 1)[1].split() for pid in children]
    return sum(int(f[11]) + int(f[12]) for f in fields) / TICKS


def measure(reads, port):
    command = [PARITAS, "dev", "--scheme", "2+1", "--nodes", "3", "--memory", "64mb", "--port", str(port), "--reads", reads]
    cluster = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while run("fill", "--port", port, "--cluster", "--to", KEYS).returncode != 0:
            assert time.monotonic() < deadline, "the cluster does not start"
        for pipeline, count in ((1, 20_000), (16, 200_000)):
            before = cpu_seconds(cluster.pid)
            done = run("run", "--port", port, "--cluster", "--op", "get", "--keys", KEYS, "--connections", 4,
                       "--pipeline", pipeline, "--operations", count)
            assert done.returncode == 0, done.stderr
            each = (cpu_seconds(cluster.pid) - before) / count * 1e6
            times = " ".join(re.findall(r"p\d\d_us=\d+", done.stdout))
            print(f"{reads:>9}, pipeline {pipeline:>2}: {each:.1f} us of CPU a GET, {times}", flush=True)
    finally:
        cluster.terminate()
        cluster.wait()


for turn in range(ROUNDS):
    measure("leases", PORT + 40 * turn)
    measure("confirmed", PORT + 40 * turn + 20)
