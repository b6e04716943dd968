"""Tables, plots and verdicts."""

import csv
import hashlib
import random
import statistics

# A shaped link carries headers too, and a read begins with questions. Beyond this excess over the link's own time, something
# else than the links was the limit, and a figure says nothing.
BUSY = 1.15
# Of the pairs of reads, to see how far a figure rests on a few of them.
DRAWS = 400


def write(path, rows):
    """Writes a table, and its line into the SHA256SUMS beside it, which `cargo xtask tidy` compares."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    sums = path.with_name("SHA256SUMS")
    lines = sums.read_text(encoding="utf-8").splitlines(keepends=True) if sums.exists() else []
    kept = [line for line in lines if not line.endswith(f"  {path.name}\n")]
    line = f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
    sums.write_text("".join([*kept, line]), encoding="utf-8")


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def spread(values):
    """Median and quarters."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    quarters = statistics.quantiles(values, n=4, method="inclusive")
    return statistics.median(values), quarters[0], quarters[2]


def sure_least(pairs, figure):
    """The figure that is exceeded with a probability of 95 %, if other pairs of reads had been drawn (bootstrap)."""
    draw = random.Random(1)
    found = sorted(figure(draw.choices(pairs, k=len(pairs))) for _ in range(DRAWS))
    return found[DRAWS // 20]


def percentile(values, percent):
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def verdict(ours, paper, trend, easier=None):
    """`paper`: what it gives, as (least, most), more being better. `trend`: from where on the direction is the paper's.
    `easier`: in what our setting is easier than the paper's, if in anything. Then not more than the trend can be shown."""
    ours = round(ours, 1)
    if easier and ours >= paper[0]:
        return f"trend only: {easier}"
    if ours > paper[1]:
        return "beaten"
    if ours >= paper[0]:
        return "reproduced"
    return "trend only" if ours > trend else "not reproduced"


def bars(path, title, groups, systems, values, unit, marks=()):
    """A bar with quarters for each group and system. `values[group, system]` is a spread. `marks` are lines (text, {group:
    value}) of what the paper has or arithmetic allows."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    width = 0.8 / len(systems)
    for at, system in enumerate(systems):
        x = [i + (at - (len(systems) - 1) / 2) * width for i, group in enumerate(groups) if (group, system) in values]
        spreads = [values[group, system] for group in groups if (group, system) in values]
        axes.bar(x, [s[0] for s in spreads], width, label=system,
                 yerr=[[s[0] - s[1] for s in spreads], [s[2] - s[0] for s in spreads]], capsize=2)
    for at, (text, line) in enumerate(marks):
        for i, group in enumerate(groups):
            if group in line:
                axes.hlines(line[group], i - 0.45, i + 0.45, colors=f"C{7 + at}", linestyles="--",
                            label=text if group == next(iter(line)) else None)
    axes.set_xticks(range(len(groups)), [str(group) for group in groups])
    axes.set_ylabel(unit)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3, axis="y")
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, dpi=100, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)
