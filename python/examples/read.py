"""Writes one value, reads it again and again with several reads under way, and prints how long that took and where the time
went, for each of the three settings of `decode`.

    python read.py ADDRESS[,ADDRESS…] [BYTES] [READS] [WINDOW]
"""

import collections
import statistics
import sys
import time

import paritas


def measure(addresses, decode, value_bytes, reads, window):
    value = bytes(range(256)) * (value_bytes // 256) + bytes(value_bytes % 256)
    under_way, took_ms, phases = collections.deque(), [], []
    with paritas.Client(addresses, decode=decode, ops_max=window) as client:
        client.set("example:read", value)
        began = time.perf_counter()
        for n in range(reads + window):
            if n < reads:
                under_way.append((time.perf_counter(), client.iget("example:read")))
            if len(under_way) == window or n >= reads and under_way:
                since, operation = under_way.popleft()
                read = operation.wait()
                took_ms.append((time.perf_counter() - since) * 1e3)
                phases.append(operation.phases)
                assert read == value, "the value that was read is not the one that was written"
        took_s = time.perf_counter() - began
    coding_ms = statistics.mean(phase.coding_s for phase in phases) * 1e3
    print(
        f"{decode:6}: median {statistics.median(took_ms):.2f} ms, longest {max(took_ms):.2f} ms, "
        f"{value_bytes * reads / took_s / 1e6:.0f} MB/s; {sum(phase.decoded_here for phase in phases)} of {reads} decoded here, "
        f"coding {coding_ms:.3f} ms a read"
    )


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    numbers = [int(text) for text in sys.argv[2:5]]
    value_bytes, reads, window = numbers + [1 << 20, 200, 1][len(numbers) :]
    for decode in "server", "client", "auto":
        measure(sys.argv[1], decode, value_bytes, reads, window)


if __name__ == "__main__":
    main()
