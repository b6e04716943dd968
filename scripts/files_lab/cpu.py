"""What reads without a straggler cost the reader's cores: CPU time of its process for each MiB that it gets, links unshaped.
The links are not the limit here, and CPU time does not grow because other programs wait for the same cores."""

import os
import pathlib
import random
import statistics

from .report import spread, write
from .stage import MIB, PARITAS, committed, load

SEED = 7
K = 4
BLOCK_MIB = 8
# The JVM compiles what runs often: after 30 reads a quarter of the time was still that of its compilers.
WARM_UPS = 300
# A process's CPU time is told in hundredths of a second.
READS = 30
# What is read, and how: in order by the default settings and as a whole, or by position, 1 MiB each.
KINDS = {"contiguous": ("/contiguous/file", "it", ["drain"]), "striped": ("/striped/file", "it", ["drain"]),
         "default settings": ("/contiguous/file", "default", ["drain"]),
         "by position": ("/contiguous/file", "default", ["drain-at", MIB])}
SYSTEMS = ("vanilla", "paritas")
# Times vanilla's CPU time.
WANTED = {"by position": 1.15}
WANTED_USUAL = 1.25


def mounts():
    return {"lake": {"blocks": 100, "block": f"{BLOCK_MIB}mb"}}


def cpu_s(process):
    """User and system time of a process so far."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def drain(reader, kind):
    path, mode, command = KINDS[kind]
    reader.ok(command[0], mode, path, *command[1:])


def measure(stage, seeds, out):
    size = K * BLOCK_MIB * MIB
    ours = [PARITAS, "fs.paritas.read.policy=whole-file", f"fs.paritas.k={K}", *stage.files("lake")]
    # A process each, so that its time is that of one system.
    default = [setting for setting in ours if "policy" not in setting]
    readers = {(layout, system): stage.reader({"it": ours if system == "paritas" else [],
                                               "default": default if system == "paritas" else []})
               for layout in KINDS for system in SYSTEMS}
    any_reader = next(iter(readers.values()))
    stage.unshaped()
    any_reader.ok("write", "/contiguous/file", size, BLOCK_MIB * MIB, SEED, *(stage.node(i) for i in range(K)))
    any_reader.ok("xor-policy", "/striped", K)
    any_reader.ok("write", "/striped/file", size, BLOCK_MIB * MIB, SEED)
    for (layout, _), reader in readers.items():
        for _ in range(WARM_UPS):
            drain(reader, layout)
    committed(stage, "lake", 2)
    rows = []
    for seed in seeds:
        for layout in KINDS:
            for system in random.Random(seed).sample(SYSTEMS, len(SYSTEMS)):
                reader = readers[layout, system]
                mode = KINDS[layout][1]
                counters = reader.counters(mode) if system == "paritas" else {"parity_bytes": 0}
                before = cpu_s(reader.process)
                for _ in range(READS):
                    drain(reader, layout)
                spent = cpu_s(reader.process) - before
                parity = reader.counters(mode)["parity_bytes"] - counters["parity_bytes"] if system == "paritas" else 0
                rows.append({"layout": layout, "seed": seed, "system": system, "reads": READS,
                             "ms of CPU a MiB": f"{1000 * spent * MIB / (READS * size):.3f}",
                             "parity MiB": parity // MIB, "load": f"{load():.1f}"})
                print(rows[-1], flush=True)
        write(out / "pocache-cpu-runs.csv", rows)
    summary = []
    for layout in KINDS:
        costs = {system: [float(row["ms of CPU a MiB"]) for row in rows if (row["layout"], row["system"]) == (layout, system)]
                 for system in SYSTEMS}
        ratio = statistics.median(a / b for a, b in zip(costs["paritas"], costs["vanilla"]))
        line = {"layout": layout, "seeds": len(costs["paritas"]), "reads": READS * len(costs["paritas"])}
        for system in SYSTEMS:
            middle, low, high = spread(costs[system])
            line |= {f"{system}, ms a MiB": f"{middle:.3f}", f"{system} quarters": f"{low:.3f} to {high:.3f}"}
        line |= {"times vanilla's": f"{ratio:.2f}", "wanted": f"at most {WANTED.get(layout, WANTED_USUAL)}",
                 "verdict": "met" if ratio <= WANTED.get(layout, WANTED_USUAL) else "not met"}
        summary.append(line)
        print(line, flush=True)
    write(out / "pocache-cpu.csv", summary)
