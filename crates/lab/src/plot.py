"""Plots an experiment: plot.py TITLE PNG x-is-logarithmic y-is-logarithmic, with the CSV on standard input."""

import csv
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("no matplotlib for this python3: python3 -m pip install matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot

title, png, x_logarithmic, y_logarithmic = sys.argv[1:]
head, *rows = csv.reader(sys.stdin)


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
    axes.plot(x, y, marker="o", markersize=3, label=name, **line)
axes.set_xlabel(head[0])
axes.set_xscale("log" if x_logarithmic == "true" else "linear")
axes.set_yscale("log" if y_logarithmic == "true" else "linear")
axes.set_title(title)
axes.grid(alpha=0.3)
axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
figure.savefig(png, dpi=100, bbox_inches="tight", metadata={"Software": None})
