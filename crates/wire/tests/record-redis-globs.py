#!/usr/bin/env python3
"""Records anew which keys redis-server lists for the patterns in redis-globs.txt, beside this script.

Needs redis-server on the path (Debian: redis-server 7.0), on x86. Draws the patterns from a fixed seed.
"""

import pathlib
import random
import socket
import subprocess
import time

FILE = pathlib.Path(__file__).with_name("redis-globs.txt")
PORT = 17792
TEXTS = 120
PATTERNS = 1500


def connect() -> socket.socket:
    end = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection(("127.0.0.1", PORT))
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def ask(server, words):
    """Sends a command; returns its reply, of which only strings, integers and arrays of strings are read."""
    server.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
    server.flush()

    def one():
        line = server.readline()
        if line[:1] == b"*":
            return [one() for _ in range(int(line[1:]))]
        if line[:1] == b"$":
            return server.read(int(line[1:]) + 2)[:-2]
        return line

    return one()


def main():
    rng = random.Random(34)
    draw = lambda letters, most: bytes(rng.choice(letters) for _ in range(rng.randint(0, most)))
    texts = sorted({b""} | {draw(b"aabbcd-]^*\\\x00\x80\xff", 7) for _ in range(TEXTS)})
    patterns = {b"", b"*", b"**", b"[", b"[^", b"[^]", b"[]", b"\\", b"[\\", b"a[", b"*[a", b"[a-", b"[a-\\]]"}
    while len(patterns) < PATTERNS:
        patterns.add(draw(rng.choice([b"ab*?", b"abc*?[]^-\\", b"aab**[]^-\\\x00\x80\xffbcd]"]), 9))
    process = subprocess.Popen(["redis-server", "--port", str(PORT), "--save", "", "--loglevel", "warning"])
    try:
        server = connect().makefile("rwb")
        for text in texts:
            ask(server, [b"SET", text, b"1"])
        lines = ["# Which keys redis-server 7.0.15 lists for KEYS; record-redis-globs.py writes it. All is in hexadecimal."]
        lines += ["# The keys:"] + [f"= {text.hex()}" for text in texts]
        lines += ["# A pattern, and the numbers of the keys that it lists:"]
        for pattern in sorted(patterns):
            listed = sorted(texts.index(text) for text in ask(server, [b"KEYS", pattern]))
            lines.append(" ".join([f"> {pattern.hex()}:", *map(str, listed)]))
        FILE.write_text("\n".join(lines) + "\n", encoding="ascii")
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
