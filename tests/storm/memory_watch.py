"""Watches the resident memory of all nodes during a storm: none may exceed its limit at any time."""

import pathlib
import re
import threading

# A part of the limit that is allowed above it, as in test_memory_limit.py.
TOLERANCE = 0.01
# How often new processes are looked for. The kernel keeps the peak of each process.
PERIOD_S = 1.0


def bytes_of(text):
    """`256mb` in bytes."""
    number, unit = re.fullmatch(r"(\d+)(kb|mb|gb|)", text.lower()).groups()
    return int(number) << {"": 0, "kb": 10, "mb": 20, "gb": 30}[unit]


def peak(pid):
    """The most bytes that a process has had resident, or `None` if it has ended."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) << 10 if found else None


class MemoryWatch(threading.Thread):
    def __init__(self, pids, limit_bytes):
        """`pids`: gives the processes of the nodes with memory. They hold no values yet."""
        super().__init__(daemon=True)
        self.pids, self.limit_bytes = pids, limit_bytes
        self.ending = threading.Event()
        self.peaks = {}
        self.look()
        # Code, stacks and tables of a process without values.
        self.empty_bytes = max(self.peaks.values())

    def look(self):
        for pid in self.pids():
            found = peak(pid)
            if found:
                self.peaks[pid] = found

    def run(self):
        while not self.ending.wait(PERIOD_S):
            self.look()

    def stop(self):
        """Returns the largest peak as a part of the limit, and whether it is allowed."""
        self.ending.set()
        self.join()
        part = (max(self.peaks.values()) - self.empty_bytes) / self.limit_bytes
        return part, part <= 1 + TOLERANCE
