"""What a user with the default settings gets: kinds of reads of one file, by Hadoop's own client and by ours in turn, with and
without a straggler at a seventh of the rate that the steward has named."""

import statistics

from conftest import until

from .report import write
from .stage import MIB, PARITAS, load

SEED = 7
MBIT = 40
NODES = 6
BLOCK = 4 * MIB
# Where the file's blocks are: block i on DataNode i modulo the nodes, and the straggler has block 1.
SLOW = 1
LARGE, HUGE_BLOCK = "/large", 32 * MIB

# Kind of read: its name, the file, the command behind the mode and the file, least % off vanilla that is wanted.
KINDS = [
    ("whole, contiguous, 2 blocks", "/c2", ["drain"], None),
    ("whole, contiguous, 4 blocks", "/c4", ["drain"], 85),
    ("whole, contiguous, 8 blocks", "/c8", ["drain"], 85),
    ("whole, contiguous, 20 blocks", "/c20", ["drain"], None),
    ("whole, striped RS-3-2, 8 blocks", "/striped/s8", ["drain"], 80),
    ("whole, does not fit the heap", LARGE, ["drain"], 50),
    ("split of one block", "/c8", ["part", SEED, SLOW * BLOCK, BLOCK], 60),
    ("by position, 4 x 1 MiB", "/c8", ["preads", SEED, MIB, MIB, "bytes", SLOW * BLOCK, (SLOW + 1) * BLOCK], 60),
    ("by position, ByteBuffer", "/c8", ["preads", SEED, MIB, MIB, "buffer", SLOW * BLOCK, (SLOW + 1) * BLOCK], 60),
    ("vectored, 4 x 1 MiB", "/c8", ["preads", SEED, MIB, MIB, "vectored", SLOW * BLOCK, (SLOW + 1) * BLOCK], 60),
    ("whole, 4 blocks, 2 replicas", "/r4", ["drain"], None),
]


def mounts():
    return {"lake": {"blocks": 200, "period_ms": 500}}


def measure(stage, pairs, out, only):
    names = [stage.node(i) for i in range(NODES)]
    ours = [PARITAS, *stage.files("lake")]
    reader = stage.reader({"vanilla": [], "ours": ours, "maker": [*ours, "fs.paritas.read.policy=whole-file"]})
    stage.unshaped()
    for path, blocks in (("/c2", 2), ("/c4", 4), ("/c8", 8), ("/c20", 20)):
        reader.ok("write", path, blocks * BLOCK, BLOCK, SEED, *(names[i % NODES] for i in range(blocks)))
    reader.ok("write", "/r4", 4 * BLOCK, BLOCK, SEED, *(f"{names[i]},{names[(i + 1) % NODES]}" for i in range(4)))
    reader.ok("policy", "/striped", "RS-3-2-1024k")
    reader.ok("write", "/striped/s8", 8 * BLOCK, BLOCK, SEED)
    reader.ok("write", LARGE, 4 * HUGE_BLOCK, HUGE_BLOCK, SEED, *names[:4])
    files = sorted({path for _, path, _, _ in KINDS})
    for path in files:
        print(path, reader.ok("locations", path), flush=True)
        before = reader.counters("maker")["commits"]

        def is_made(path=path, before=before):
            reader.ok("drain", "maker", path)
            return reader.counters("maker")["commits"] > before or stage.status("lake")["entries_count"]["cached"] >= len(files)

        until(is_made, f"the parity of {path} is made")
    rows = []
    for slow in ((), (SLOW,)):
        stage.rates(slow)
        if slow:
            # Others read too: the steward learns from clients who is slow.
            until(lambda: (reader.ok("drain", "maker", "/c20"), reader.ok("drain", "maker", "/striped/s8"),
                           stage.status("lake")["stragglers"] == [names[SLOW]])[-1], "the steward names the straggler")
        for name, path, command, wanted in KINDS:
            if only and only not in name:
                continue
            small = ["fs.paritas.read.memory=96m"] if path == LARGE else []
            for pair in range(pairs):
                # Cold clients: a JVM for each read.
                for system in ("vanilla", "ours") if pair % 2 else ("ours", "vanilla"):
                    cold = stage.reader({"it": [*ours, *small] if system == "ours" else []})
                    try:
                        stage.quiet()
                        words = cold.ok(command[0] if command[0] != "drain" else "read", "it", path,
                                        *(command[1:] or [SEED])).split()
                        counters = cold.counters("it") if system == "ours" else {}
                    finally:
                        stage.readers.remove(cold)
                        cold.stop()
                    rows.append({"kind": name, "stragglers": len(slow), "pair": pair, "system": system,
                                 "seconds": f"{int(words[0]) / 1e9:.3f}", "bytes": words[1], "load": f"{load():.1f}",
                                 **{field: counters.get(field, "") for field in
                                    ("data_bytes", "parity_bytes", "decoded_bytes", "hedges_declined")}})
                    print(rows[-1], flush=True)
    write(out / "pocache-defaults-reads.csv", rows)
    save(rows, out)


def save(rows, out):
    summary = []
    for name, _, _, wanted in KINDS:
        for stragglers in (0, 1):
            times = {system: [float(row["seconds"]) for row in rows
                              if (row["kind"], int(row["stragglers"]), row["system"]) == (name, stragglers, system)]
                     for system in ("vanilla", "ours")}
            if not times["ours"]:
                continue
            off = 100 * (1 - statistics.median(a / b for a, b in zip(times["ours"], times["vanilla"])))
            least = -3 if not stragglers else wanted
            summary.append({"kind": name, "stragglers": stragglers, "pairs": len(times["ours"]),
                            "vanilla s": f"{statistics.median(times['vanilla']):.3f}",
                            "ours s": f"{statistics.median(times['ours']):.3f}", "off vanilla %": f"{off:.1f}",
                            "wanted": "" if least is None else f"at least {least} %",
                            "verdict": "" if least is None else "met" if off >= least else "not met"})
            print(summary[-1], flush=True)
    write(out / "pocache-defaults.csv", summary)
