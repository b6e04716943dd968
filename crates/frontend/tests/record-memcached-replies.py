#!/usr/bin/env python3
"""Records anew what memcached answers to the commands in memcached-replies.txt, and to random ones.

Needs memcached on the path (Debian: memcached 1.6.18). To add a command, add a line `> command` to memcached-replies.txt, beside
this script, and run this. `{cas}` is the number that the last answer had for `cas`; `{key}` and `{long}` are keys of 250 and 251
bytes. memcached-random-replies.txt has random commands about stale items; there `{cas 5}` is the number for `cas` that was told
as the sixth. `= ms` lets time pass.
"""

import pathlib
import random
import re
import socket
import subprocess
import time

HERE = pathlib.Path(__file__).parent
PORT = 17792
SEED = 7
COUNT = 2000
# Its background threads hold items for a moment, in which `decr` does not keep the length of a number.
FEW_THREADS = ["-o", "no_lru_maintainer,no_lru_crawler,no_slab_reassign"]
END = b"VERSION 1.6.18\r\n"
CAS = re.compile(rb"(?m)^(VALUE \S+ \d+ \d+ |(?:HD|VA)(?: .*)? c|ME .* cas=)(\d+)")


def escape(data: bytes) -> str:
    named = {13: "\\r", 10: "\\n", 92: "\\\\"}
    return "".join(named.get(c) or (chr(c) if 32 <= c < 127 else f"\\x{c:02x}") for c in data)


def unescape(text: str) -> bytes:
    return text.encode().decode("unicode_escape").encode("latin-1")


def connect() -> socket.socket:
    end = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection(("127.0.0.1", PORT))
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def ask(conn: socket.socket, line: bytes) -> bytes:
    """The answer to a line: what comes before that to `version`."""
    conn.sendall(line + b"\r\nversion\r\n")
    got = b""
    while not got.endswith(END):
        some = conn.recv(1 << 20)
        if not some:
            raise RuntimeError(f"{line!r} ends the connection")
        got += some
    return got.removesuffix(END)


def record(conn: socket.socket, path: pathlib.Path) -> None:
    cas, out = b"", []
    for line in path.read_text().splitlines():
        if line.startswith("< "):
            continue
        out.append(line)
        if line.startswith("= "):
            time.sleep(int(line[2:]) / 1000)
        elif line.startswith("> "):
            command = unescape(line[2:]).replace(b"{cas}", cas)
            command = command.replace(b"{key}", b"k" * 250).replace(b"{long}", b"k" * 251)
            reply = ask(conn, command)
            for found in CAS.finditer(reply):
                cas = found[2]
            reply = CAS.sub(rb"\1{cas}", reply).replace(b"k" * 250, b"{key}")
            out.append("< " + escape(reply))
    path.write_text("\n".join(out) + "\n")


class Random:
    """Random commands on few keys. All data differ, since the numbers for `cas` of an item that has changed back differ there only."""

    def __init__(self):
        self.draw, self.told, self.count = random.Random(SEED), [], 0
        # Of each key, which of the numbers it had. They are all lower than that which it has.
        self.of_key = {"a": [], "b": []}
        self.key = ""

    def data(self) -> str:
        self.count += 1
        return self.draw.choice(["", "v"]) + str(self.count * 1_000_000 + self.draw.randrange(10**5))

    def cas(self) -> str:
        of_key = self.of_key[self.key]
        if of_key and self.draw.random() < 0.95:
            back = min(self.draw.choice([0, 0, 0, 1, 2, 5]), len(of_key) - 1)
            return f"{{cas {of_key[-1 - back]}}}"
        return self.draw.choice(["0", str(2**63), str(2**64 - 1)])

    def flags(self, least: str, others: dict[str, float]) -> str:
        """These flags, some of the others, each with its likelihood, and a few that every command has."""
        token = {
            "T": lambda: self.draw.choice(["0", "1000", "100000"]),
            "R": lambda: self.draw.choice(["0", "-1", "100", "10000", "1000000"]),
            "N": lambda: self.draw.choice(["0", "1000", "100000"]),
            "C": self.cas,
            "D": lambda: self.draw.choice(["1", "7"]),
            "F": lambda: self.draw.choice(["0", "5"]),
            "J": self.data_number,
            "O": lambda: "x",
        }
        letters = list(least) + [letter for letter, likely in {**others, "q": 0.1, "k": 0.1, "O": 0.1}.items() if self.draw.random() < likely]
        self.draw.shuffle(letters)
        return "".join(f" {letter}{token[letter]() if letter in token else ''}" for letter in letters)

    def data_number(self) -> str:
        self.count += 1
        return str(self.count * 1_000_000)

    def command(self) -> list[str]:
        key, data = self.draw.choice("ab"), self.data()
        self.key = key
        mode = self.draw.choice(["", "", "", "", "", "", " MS", " ME", " MR", " MA", " MP"])
        count = self.draw.choice(["", "", " MD", " MI"])
        kinds = {
            "mg": (8, lambda: [f"mg {key}{self.flags('', {'v': 0.5, 'c': 0.7, 'R': 0.3, 'T': 0.1, 's': 0.2, 'f': 0.2})}"]),
            "mgN": (0.6, lambda: ["= 1000", f"mg {key}{self.flags('Nc', {'v': 0.5, 'R': 0.3, 'T': 0.1})}"]),
            "md": (4, lambda: [f"md {key}{self.flags('I', {'C': 0.3, 'T': 0.2})}"]),
            "mdd": (0.8, lambda: [f"md {key}{self.flags('', {'C': 0.5})}"]),
            "ms": (5, lambda: [f"ms {key} {len(data)}{self.flags('', {'I': 0.5, 'C': 0.6, 'T': 0.3, 'c': 0.3, 'F': 0.3})}{mode}\\r\\n{data}"]),
            "ma": (1, lambda: [f"ma {key}{self.flags('', {'C': 0.2, 'c': 0.5, 'v': 0.5, 'D': 0.5, 'N': 0.2, 'J': 0.3, 'T': 0.2})}{count}"]),
            "gets": (0.5, lambda: [f"gets {key}"]),
            "get": (0.5, lambda: [f"get {key}"]),
            "gat": (0.3, lambda: [f"gat 1000 {key}"]),
            "set": (0.4, lambda: [f"set {key} 3 0 {len(data)}\\r\\n{data}"]),
            "append": (0.3, lambda: [f"{self.draw.choice(['append', 'prepend', 'add', 'replace'])} {key} 0 0 {len(data)}\\r\\n{data}"]),
            "cas": (0.4, lambda: [f"cas {key} 0 0 {len(data)} {self.cas()}\\r\\n{data}"]),
            "incr": (0.3, lambda: [f"{self.draw.choice(['incr', 'decr'])} {key} {self.draw.choice([1, 10**9])}"]),
            "touch": (0.3, lambda: [f"touch {key} {self.draw.choice([0, 1000])}"]),
        }
        kind = self.draw.choices(list(kinds), [weight for weight, _ in kinds.values()])[0]
        return kinds[kind][1]()

    def record(self, conn: socket.socket, path: pathlib.Path) -> None:
        out = [f"# {COUNT} random commands, seed {SEED}."]
        ask(conn, b"flush_all")
        for _ in range(COUNT):
            for line in self.command():
                if line.startswith("= "):
                    out.append(line)
                    time.sleep(int(line[2:]) / 1000)
                    continue
                out.append("> " + line)
                command = re.sub(rb"\{cas (\d+)\}", lambda found: self.told[int(found[1])], unescape(line))
                out.append("< " + escape(CAS.sub(self.named, ask(conn, command))))
        path.write_text("\n".join(out) + "\n")

    def named(self, found: re.Match) -> bytes:
        if found[2] not in self.told:
            self.of_key[self.key].append(len(self.told))
            self.told.append(found[2])
        return found[1] + b"{cas %d}" % self.told.index(found[2])


def main() -> None:
    server = subprocess.Popen(
        ["memcached", "-l", "127.0.0.1", "-p", str(PORT), "-U", "0", "-u", "nobody", *FEW_THREADS], stdout=subprocess.DEVNULL
    )
    try:
        conn = connect()
        record(conn, HERE / "memcached-replies.txt")
        Random().record(conn, HERE / "memcached-random-replies.txt")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
