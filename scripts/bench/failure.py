"""The cost of a loss: CPU time to rebuild what a node held, and the latency of reads meanwhile."""

import json
import os
import signal
import statistics
import subprocess
import time

import systems

ROUNDS = 5
# Keys of 1000 B: 260 MB a node, including its share of parity. At RATE the rebuild takes longer than the reads are
# measured.
KEYS = 1_000_000
RATE = "10mb"
SECONDS = 6


def status(system):
    command = [systems.PARITAS, "status", "--port", str(system.any_port), "--json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def is_whole(found, without):
    """Whether every node runs as a process not in `without`, and every position is Live."""
    nodes = all(node["state"] == "live" and node["pid"] not in without for node in found["nodes"])
    return nodes and all(place["state"] == "live" for each in found["lists"] for place in each["positions"])


def is_back(system, victim):
    """Whether the node's next process answers clients."""
    node = status(system)["nodes"][victim["id"]]
    again = node["state"] != "down" and node["pid"] != victim["pid"]
    return again and systems.answers(int(node["cluster_address"].split(":")[1]))


def at_once(node):
    port = node["address"].split(":")[1]
    command = ["redis-cli", "-p", port, "config", "set", "rebuild-rate", "0"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def cpu_by_pid(system):
    """CPU seconds of each process so far."""
    found = {}
    for pid in system.pids():
        try:
            found[pid] = sum(
                int(open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii").read().split()[0]) / 1e9
                for thread in os.listdir(f"/proc/{pid}/task")
            )
        except OSError:
            pass
    return found


def rebuild_once(system, first, count):
    """Kills `count` nodes at once. Returns the bytes that they held, CPU seconds of all processes, and seconds until
    all is Live."""
    before = status(system)
    # Another node each time: one that fails often must wait (P10.7), and others stand in for it. The first node
    # is the one that is asked for the status.
    nodes = before["nodes"][1:]
    victims = [nodes[(first + i) % len(nodes)]["pid"] for i in range(count)]
    held = sum(before["memory"]["by_kind"][kind] for kind in ("data", "index", "parity"))
    spent = cpu_by_pid(system)
    began = time.monotonic()
    for pid in victims:
        spent.pop(pid)
        os.kill(pid, signal.SIGKILL)
    systems.until(lambda: is_whole(status(system), victims), "rebuilt")
    took = time.monotonic() - began
    cpu = sum(seconds - spent.get(pid, 0) for pid, seconds in cpu_by_pid(system).items())
    return {"bytes": held * count / len(before["nodes"]), "cpu": cpu, "seconds": took}


def rebuild(say):
    """GB of lost data per CPU second, with one and with two lost nodes. Median of the rounds."""
    rows = []
    with systems.ours("4+2") as system:
        system.fill(0, KEYS, 1000)
        system.settled_resident()
        for count in (1, 2):
            each = [rebuild_once(system, turn * count, count) for turn in range(ROUNDS)]
            rates = [row["bytes"] / 1e9 / row["cpu"] for row in each]
            row = {"lost": count, "bytes": each[0]["bytes"], "seconds": statistics.median(r["seconds"] for r in each)}
            row |= {"rate": statistics.median(rates), "least": min(rates), "most": max(rates)}
            rows.append(row)
            say(f"{count} lost, {row['bytes'] / 1e6:.0f} MB: {row['rate']:.3f} GB per CPU second, {row['seconds']:.2f} s")
    return rows


def reads(system, rate, sets_rate):
    """p50 and p95 of GETs in µs, while SETs run at their own rate."""
    command = [systems.LOAD, "run", "--port", str(system.port), "--cluster", "--zipf", "0.99", "--keys", str(KEYS)]
    command += ["--value", "1000"]

    def run(operation, rate):
        operations = ["--operations", str(int(rate * SECONDS)), "--rate", str(rate)]
        return subprocess.Popen([*command, "--op", operation, *operations], stdout=subprocess.PIPE, text=True)

    writer = run("set", sets_rate) if sets_rate else None
    text, _ = run("get", rate).communicate()
    if writer:
        writer.communicate()
    found = dict(field.split("=") for field in text.split())
    if found.get("missing") != "0":
        raise SystemExit(f"bench: keys are missing: {text}")
    return float(found["p50_us"]), float(found["p95_us"])


def degraded(say):
    """GETs while a node is being rebuilt, on six nodes and on as many as in MemEC's measurements."""
    return degraded_on("4+2", 6, 4_000, say) + degraded_on("8+2", 16, 1_000, say)


def degraded_on(scheme, nodes, rate_max, say):
    """Measures from 1 s after the node answers, and compares with GETs of the complete cluster. The rate is low enough
    to avoid queues."""
    rows = []
    with systems.Paritas(scheme, nodes, options=["--rebuild-rate", RATE]) as system:
        system.fill(0, KEYS, 1000)
        for name, rate, sets_rate in (("GET only", rate_max, 0), ("GET and SET, one to one", rate_max // 2, rate_max // 2)):
            normal, lost = [], []
            for _ in range(ROUNDS):
                normal.append(reads(system, rate, sets_rate))
                # Another node each time, as above.
                victim = status(system)["nodes"][-1 - len(lost)]
                os.kill(victim["pid"], signal.SIGKILL)
                systems.until(lambda: is_back(system, victim), "the node answers again")
                # The target is defined for this instant.
                time.sleep(1)
                lost.append(reads(system, rate, sets_rate))
                if is_whole(status(system), []):
                    raise SystemExit("bench: the node was complete before the reads ended")
                at_once(victim)
                systems.until(lambda: is_whole(status(system), [victim["pid"]]), "rebuilt")
            row = {"nodes": f"{nodes}, `{scheme}`", "load": name, "rate": rate}
            for what, each in (("normal", normal), ("lost", lost)):
                row |= {f"{what}_p50": statistics.median(e[0] for e in each)}
                row |= {f"{what}_p95": statistics.median(e[1] for e in each)}
            rows.append(row)
            say(f"{nodes} nodes, {name}: p95 {row['normal_p95']:.0f} us, while a node is rebuilt {row['lost_p95']:.0f} us")
    return rows
