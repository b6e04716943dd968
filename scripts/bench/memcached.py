#!/usr/bin/env python3
"""CPU-µs per get and set of the memcached port of one node without copies, against memcached with one thread:
`python3 scripts/bench/memcached.py`. It wants `make release` and the program `load` (`cargo build --release --package
paritas --example load`), or PARITAS_BIN and LOAD_BIN."""

import cpu
import systems

OFFSET = 2_000
RUNS = 5


def main():
    print("| operation | paritas `1+0` | memcached | ratio |\n| --- | --- | --- | --- |")
    with systems.ours("1+0") as ours, systems.Memcached() as theirs:
        # From here on by its memcached port.
        ours.port, ours.memcached = ours.port + OFFSET, True
        for system in (ours, theirs):
            system.fill(0, cpu.KEYS, 32)
        for pipeline in (1, 16):
            for operation in ("get", "set"):
                table = cpu.Table(lambda text: None)
                contenders = [
                    (system.name, system, lambda s=system: cpu.get_or_set(s, operation, pipeline))
                    for system in (ours, theirs)
                ]
                table.alternate(operation, contenders, RUNS)
                cells = [(table.cells[operation, s.name], table.spread[operation, s.name]) for s in (ours, theirs)]
                text = " | ".join(f"{median:.2f} ({low:.2f}-{high:.2f})" for median, (low, high) in cells)
                print(f"| {operation} 32 B, pipeline {pipeline} | {text} | {cells[0][0] / cells[1][0]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
