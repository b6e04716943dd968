#!/usr/bin/env python3
"""Records anew what memcached answers to the commands in memcached-replies.txt, beside this script.

Needs memcached on the path (Debian: memcached 1.6.18). To add a command, add a line `> command` and run this. `{cas}` is the
number that the last answer had for `cas`; `{key}` and `{long}` are keys of 250 and 251 bytes.
"""

import pathlib
import re
import socket
import subprocess
import time

FILE = pathlib.Path(__file__).with_name("memcached-replies.txt")
PORT = 17792
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


def main() -> None:
    server = subprocess.Popen(
        ["memcached", "-l", "127.0.0.1", "-p", str(PORT), "-U", "0", "-u", "nobody", *FEW_THREADS], stdout=subprocess.DEVNULL
    )
    try:
        conn, cas, out = connect(), b"", []
        for line in FILE.read_text().splitlines():
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
        FILE.write_text("\n".join(out) + "\n")
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
