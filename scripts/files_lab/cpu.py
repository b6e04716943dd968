"""What a read without a straggler costs the reader's cores: CPU time of its process for each MiB that it gets, links unshaped.
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
LAYOUTS = ("contiguous", "striped")
SYSTEMS = ("vanilla", "paritas")
# The parity is read too; beside it a tenth more than vanilla.
WANTED = 1.1 * (K + 1) / K


def mounts():
    return {"lake": {"blocks": 100, "block": f"{BLOCK_MIB}mb"}}


def cpu_s(process):
    """User and system time of a process so far."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(stage, seeds, out):
    size = K * BLOCK_MIB * MIB
    ours = [PARITAS, "fs.paritas.read.policy=whole-file", f"fs.paritas.k={K}", *stage.files("lake")]
    # A process each, so that its time is that of one system.
    readers = {(layout, system): stage.reader({"it": ours if system == "paritas" else []})
               for layout in LAYOUTS for system in SYSTEMS}
    any_reader = next(iter(readers.values()))
    stage.unshaped()
    any_reader.ok("write", "/contiguous/file", size, BLOCK_MIB * MIB, SEED, *(stage.node(i) for i in range(K)))
    any_reader.ok("xor-policy", "/striped", K)
    any_reader.ok("write", "/striped/file", size, BLOCK_MIB * MIB, SEED)
    for (layout, _), reader in readers.items():
        for _ in range(WARM_UPS):
            reader.ok("drain", "it", f"/{layout}/file")
    committed(stage, "lake", len(LAYOUTS))
    rows = []
    for seed in seeds:
        for layout in LAYOUTS:
            for system in random.Random(seed).sample(SYSTEMS, len(SYSTEMS)):
                reader = readers[layout, system]
                counters = reader.counters("it") if system == "paritas" else {"parity_bytes": 0}
                before = cpu_s(reader.process)
                for _ in range(READS):
                    reader.ok("drain", "it", f"/{layout}/file")
                spent = cpu_s(reader.process) - before
                parity = reader.counters("it")["parity_bytes"] - counters["parity_bytes"] if system == "paritas" else 0
                rows.append({"layout": layout, "seed": seed, "system": system, "reads": READS,
                             "ms of CPU a MiB": f"{1000 * spent * MIB / (READS * size):.3f}",
                             "parity MiB": parity // MIB, "load": f"{load():.1f}"})
                print(rows[-1], flush=True)
        write(out / "pocache-cpu-runs.csv", rows)
    summary = []
    for layout in LAYOUTS:
        costs = {system: [float(row["ms of CPU a MiB"]) for row in rows if (row["layout"], row["system"]) == (layout, system)]
                 for system in SYSTEMS}
        ratio = statistics.median(a / b for a, b in zip(costs["paritas"], costs["vanilla"]))
        line = {"layout": layout, "seeds": len(costs["paritas"]), "reads": READS * len(costs["paritas"])}
        for system in SYSTEMS:
            middle, low, high = spread(costs[system])
            line |= {f"{system}, ms a MiB": f"{middle:.3f}", f"{system} quarters": f"{low:.3f} to {high:.3f}"}
        line |= {"times vanilla's": f"{ratio:.2f}", "wanted": f"at most {WANTED:.3f}",
                 "verdict": "met" if ratio <= WANTED else "not met"}
        summary.append(line)
        print(line, flush=True)
    write(out / "pocache-cpu.csv", summary)
