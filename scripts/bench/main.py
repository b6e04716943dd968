"""`make bench`: measures all systems for comparison and writes their tables to docs/benchmarks-run.md. FULL=1 uses 20
key counts instead of 5."""

import argparse
import json
import subprocess
import sys
import time

import cpu
import failure
import logged
import memory
import report
import systems

RESULTS = systems.TARGET / "bench.json"


def say(text):
    print(f"{time.strftime('%T')} {text}", flush=True)


def measure_memory(full):
    results = {"sweep": [], "overwritten": [], "mixed": None, "steps": 20 if full else 5}
    for value in memory.VALUES:
        for start in memory.everyone():
            row = memory.sweep(start, value, results["steps"])
            results["sweep"].append(row)
            say(f"{row['system']}, values of {value} B: {row['mean']:.1f} B per object, worst {row['worst']:.1f}")
    schemes = ("1+0", "4+1", "4+2", "8+2") if full else ("4+2",)
    contenders = [lambda scheme=scheme: systems.ours(scheme) for scheme in schemes]
    contenders.append(lambda: systems.valkey(for_memory=True))
    for value in memory.VALUES:
        for start in contenders:
            first = memory.COUNTS[value < 1000][0]
            row = memory.overwritten(start, value, first if full else first * 4 // 7)
            results["overwritten"].append(row)
            what = f"{row['system']}, values of {value} B overwritten"
            say(f"{what}: {row['fresh']:.1f} -> {row['after']:.1f} B per object")
    results["mixed"] = memory.mixed("4+2", 280_000)
    return results


def measure_cpu():
    table = cpu.Table(say)
    cpu.one_shard(table)
    cpu.replicated(table)
    cpu.forwarded(table)
    return {"cells": [[*key, value, *table.spread[key]] for key, value in table.cells.items()]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="20 key counts, and overwriting with all schemes")
    parts = ["memory", "cpu", "latency", "failure", "logged"]
    only = "measure only this part; the figures of the others are those of the last run. report: measure nothing"
    parser.add_argument("--only", choices=[*parts, "report"], help=only)
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if arguments.only in (None, "memory"):
        results["memory"] = measure_memory(arguments.full)
    if arguments.only in (None, "cpu"):
        results["cpu"] = measure_cpu()
    if arguments.only in (None, "latency"):
        results["latency"] = cpu.latency(say)
    if arguments.only in (None, "failure"):
        results["failure"] = {"rebuild": failure.rebuild(say), "degraded": failure.degraded(say)}
    if arguments.only in (None, "logged"):
        results["logged"] = logged.measure(say)
    if arguments.only != "report":
        done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
        results["commit"], results["date"] = done.stdout.strip(), time.strftime("%F")
        # The parts of a page may have been measured at different commits.
        measured = [arguments.only] if arguments.only else parts
        results["measured"] = results.get("measured", {}) | dict.fromkeys(measured, results["commit"])
        RESULTS.write_text(json.dumps(results, indent=1))
    text = report.write(results)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
