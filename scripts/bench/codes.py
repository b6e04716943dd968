"""Online EC's study of three codes (its Fig. 4), with the library and the codes of the paper: Jerasure 2.0, RS with a
Vandermonde matrix, Cauchy RS and RAID-6 Liberation, for 3 data and 2 parity fragments of objects of 1 KiB to 1 MiB.

    apt-get install gcc libjerasure-dev
    python3 scripts/bench/codes.py [--rounds 40]

The paper does not say which packets the last two codes have: each has the best of four lengths here, at each length of
the object. Writes docs/lab/online-ec-codes.csv, -verdicts.csv and .png."""

import argparse
import collections
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts")]
from files_lab import report  # noqa: E402

OURS = "RS Vandermonde"
WHATS = ["encode", "decode 1 lost", "decode 2 lost"]


def measure(rounds):
    """Nanoseconds for each object, by what is done, its length, code and packet."""
    if not shutil.which("gcc"):
        sys.exit("codes.py: no gcc: apt-get install gcc libjerasure-dev")
    with tempfile.TemporaryDirectory() as directory:
        program = pathlib.Path(directory) / "codes"
        source = ROOT / "scripts" / "bench" / "codes.c"
        command = ["gcc", "-O2", "-I/usr/include/jerasure", "-o", program, source, "-lJerasure", "-lgf_complete"]
        if subprocess.run(command, check=False).returncode:
            sys.exit("codes.py: codes.c does not compile: apt-get install gcc libjerasure-dev")
        lines = subprocess.run([program, str(rounds)], check=True, capture_output=True, text=True).stdout.split("\n")
    times = collections.defaultdict(list)
    for line in filter(None, lines):
        _, code, packet, size, what, taken = line.split(",")
        times[what, int(size), code, int(packet)].append(float(taken))
    return times


def best(times, what, size, code):
    """The spread of the packet length with the least median, and that length."""
    found = {packet: report.spread(taken) for (*of, packet), taken in times.items() if of == [what, size, code]}
    packet = min(found, key=lambda packet: found[packet][0])
    return found[packet], packet


def write(out, times):
    codes = list(dict.fromkeys(code for _, _, code, _ in times))
    sizes = sorted({size for _, size, _, _ in times})
    rows, claims, bars = [], [], {}
    for what in WHATS:
        ratios = []
        for size in sizes:
            medians = {}
            for code in codes:
                spread, packet = best(times, what, size, code)
                medians[code] = spread[0]
                bars[f"{what}, {size >> 10} KiB", code] = tuple(figure / size for figure in spread)
                median, low, high = (f"{figure / 1e3:.2f}" for figure in spread)
                cells = {"what": what, "bytes": str(size), "code": code, "packet": str(packet or "")}
                rows.append({**cells, "median us": median, "quarter us": low, "three quarters us": high})
            ratios.append(min(medians[code] for code in codes if code != OURS) / medians[OURS])
        fastest = sum(ratio > 1 for ratio in ratios)
        told = {len(ratios): "reproduced"}.get(fastest, "trend only" if 2 * fastest > len(ratios) else "not reproduced")
        said = " ".join(f"{ratio:.2f}" for ratio in ratios)
        claims.append({"claim": f"{what}: RS Vandermonde is the fastest at all six lengths", "paper": "holds",
                       "ours": f"time of the faster of the others / its time: {said}", "verdict": told})
    for part, table in (("", rows), ("-verdicts", claims)):
        report.write(out / f"online-ec-codes{part}.csv", table)
        lines = [list(table[0]), *(list(row.values()) for row in table)]
        print("\n".join(", ".join(line) for line in lines), end="\n\n")
    groups = list(dict.fromkeys(group for group, _ in bars))
    title = "Jerasure 2.0, 3 data and 2 parity fragments"
    report.bars(out / "online-ec-codes.png", title, groups, codes, bars, "ns for a byte of the object, medians and quarters")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs" / "lab")
    asked = parser.parse_args()
    write(asked.out, measure(asked.rounds))


if __name__ == "__main__":
    main()
