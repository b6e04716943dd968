#!/usr/bin/env python3
"""Records anew what redis-server answers to the commands in redis-replies.txt, beside this script.

Needs redis-server on the path (Debian: redis-server 7.0). To add a command, add a line `> command` and run this.
A line `~ command` is one without a reply: it is sent together with the next one.
"""

import pathlib
import socket
import subprocess
import time

FILE = pathlib.Path(__file__).with_name("redis-replies.txt")
PORT = 17791


def escape(data: bytes) -> str:
    named = {13: "\\r", 10: "\\n", 92: "\\\\"}
    return "".join(named.get(c) or (chr(c) if 32 <= c < 127 else f"\\x{c:02x}") for c in data)


def connect() -> socket.socket:
    end = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection(("127.0.0.1", PORT), timeout=5)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def reply_length(got: bytes) -> int:
    """Bytes of the reply that these begin with; 0 if it is not whole yet."""
    at, left = 0, 1
    while left:
        end = got.find(b"\r\n", at)
        if end < 0:
            return 0
        kind, number = got[at : at + 1], got[at + 1 : end]
        at, left = end + 2, left - 1
        if kind in b"$=!" and int(number) >= 0:
            at += int(number) + 2
        elif kind in b"*~>%":
            left += max(int(number), 0) * (2 if kind == b"%" else 1)
    return at if at <= len(got) else 0


def ask(conn: socket.socket, line: str) -> bytes:
    conn.sendall(line.encode())
    got = b""
    while reply_length(got) == 0:
        more = conn.recv(1 << 20)
        if not more:
            raise SystemExit(f"redis-server closed the connection after {line} -> {got}")
        got += more
    return got


def main() -> None:
    server = subprocess.Popen(
        ["redis-server", "--port", str(PORT), "--save", "", "--appendonly", "no", "--loglevel", "warning"],
        stdout=subprocess.DEVNULL,
    )
    try:
        conn = connect()
        out, silent = [], ""
        for line in FILE.read_text().splitlines():
            if line.startswith(("< ", "? any")):
                continue
            out.append(line)
            if line.startswith("= "):
                time.sleep(int(line[2:]) / 1000)
            elif line.startswith("~ "):
                silent += line[2:] + "\r\n"
            elif line.startswith("> "):
                reply = ask(conn, silent + line[2:] + "\r\n")
                silent = ""
                # HELLO tells ids and versions.
                out.append("? any" if line.startswith("> HELLO") and reply[:1] in b"*%" else "< " + escape(reply))
        FILE.write_text("\n".join(out) + "\n")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
