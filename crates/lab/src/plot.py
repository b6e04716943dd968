"""Plots an experiment: plot.py TITLE PNG x-is-logarithmic y-is-logarithmic Y [NAME=LEVEL...]. On standard input: the
rows as CSV, an empty line and, if there is a spread, a line for each row with the lowest and highest quarter of each
figure."""

import csv
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("no matplotlib for this python3: python3 -m pip install matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot

title, png, x_logarithmic, y_logarithmic, y_name, *levels = sys.argv[1:]
head, *rows = csv.reader(sys.stdin)
empty = rows.index([]) if [] in rows else len(rows)
rows, spread = rows[:empty], [[float(end) for end in line] for line in rows[empty + 1:]]


def place(text):
    """A number if possible, else a name."""
    try:
        return float(text)
    except ValueError:
        return text


figure, axes = pyplot.subplots(figsize=(8, 5))
# Number of lines with colours of their own; the following ones are dashed. Four systems with four codes get four of
# each.
COLOURS = 4 if len(head) - 1 in (4, 16) else 6
for at, name in enumerate(head[1:]):
    line = {"color": f"C{at % COLOURS}", "linestyle": ["-", "--", ":", "-."][at // COLOURS % 4]}
    x, y = [place(row[0]) for row in rows], [float(row[at + 1]) for row in rows]
    ends = [quarters[2 * at:2 * at + 2] for quarters in spread]
    # A median of another kind may lie beyond the quarters.
    bars = [[max(0, here - low) for here, (low, _) in zip(y, ends)],
            [max(0, high - here) for here, (_, high) in zip(y, ends)]]
    axes.errorbar(x, y, yerr=bars if ends else None, marker="o", markersize=3, capsize=2, linewidth=1.5, elinewidth=0.8,
                  label=name, **line)
for level in levels:
    name, figure_of_paper = level.rsplit("=", 1)
    axes.axhline(float(figure_of_paper), color="grey", linewidth=0.8, linestyle=(0, (1, 3)))
    axes.annotate(name, (1, float(figure_of_paper)), xycoords=("axes fraction", "data"), fontsize=7, ha="right",
                  va="bottom")
axes.set_xlabel(head[0])
axes.set_ylabel(y_name)
axes.set_xscale("log" if x_logarithmic == "true" else "linear")
axes.set_yscale("log" if y_logarithmic == "true" else "linear")
axes.set_title(title)
axes.grid(alpha=0.3)
axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
figure.savefig(png, dpi=100, bbox_inches="tight", metadata={"Software": None})
