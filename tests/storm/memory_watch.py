"""Watches the resident memory of all nodes during a storm: none may exceed its limit at any time."""

import pathlib
import re
import threading

# A part of the limit that is allowed above it, as in test_memory_limit.py.
TOLERANCE = 0.01
# How often processes are looked at. The kernel keeps the peak of each process, and a node sets it back four times a
# second. So only what a process takes in the last moment before that, or before its death, can be missed.
PERIOD_S = 0.05


def bytes_of(text):
    """`256mb` in bytes."""
    number, unit = re.fullmatch(r"(\d+)(kb|mb|gb|)", text.lower()).groups()
    return int(number) << {"": 0, "kb": 10, "mb": 20, "gb": 30}[unit]


def peak(pid):
    """The most bytes that a process has had resident since it set that back, or `None` if it has ended."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) << 10 if found else None


class MemoryWatch(threading.Thread):
    def __init__(self, processes, limit_bytes):
        """`processes`: gives the running process of each node with memory. They hold no values yet."""
        super().__init__(daemon=True)
        self.processes, self.limit_bytes = processes, limit_bytes
        self.ending = threading.Event()
        self.peaks, self.looks, self.error = {}, 0, None
        self.look()
        # Code, stacks and tables of a process without values.
        self.empty_bytes = max(self.peaks.values())

    def look(self):
        for pid in self.processes():
            found = peak(pid)
            if found:
                self.peaks[pid] = max(found, self.peaks.get(pid, 0))
        self.looks += 1

    def run(self):
        try:
            while not self.ending.wait(PERIOD_S):
                self.look()
        except Exception as error:
            self.error = error

    def stop(self):
        """Returns the largest peak as a part of the limit, and whether it is allowed."""
        self.ending.set()
        self.join()
        if self.error:
            raise self.error
        self.look()
        assert self.looks > 2, "the memory of the nodes was not watched"
        part = (max(self.peaks.values()) - self.empty_bytes) / self.limit_bytes
        return part, part <= 1 + TOLERANCE
