"""Instructions that one node spends on a command, counted by valgrind, of one build or of several beside each other.

    python3 scripts/bench/instructions.py target/release/paritas [older-build ...]

One node, scheme 1+0, pipelines of 50 commands on 1,000 keys with values of 100 B. The difference between a long and a short
run, divided by the commands: start and end do not count."""

import argparse
import pathlib
import re
import socket
import subprocess
import tempfile
import time

DEPTH = 50
KEYS = 1_000
VALUE = b"v" * 100
TIMEOUT_S = 120


def request(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def key(n):
    return b"key:%06d" % (n % KEYS)


def tagged(n):
    return b"{tag}:%06d" % (n % KEYS)


BULK = b"$%d\r\n%s\r\n" % (len(VALUE), VALUE)
# For each kind its n-th command, and the length of the reply in bytes.
KINDS = {
    "GET": (lambda n: request(b"GET", key(n)), len(BULK)),
    "SET": (lambda n: request(b"SET", key(n), VALUE), 5),
    "MGET of 10 keys": (lambda n: request(b"MGET", *[key(7 * n + i) for i in range(10)]), 5 + 10 * len(BULK)),
    "MULTI of 10 SETs": (
        lambda n: request(b"MULTI") + b"".join(request(b"SET", tagged(7 * n + i), VALUE) for i in range(10)) + request(b"EXEC"),
        5 + 10 * 9 + 5 + 10 * 5,
    ),
    "MSET of a slot": (lambda n: request(b"MSET", *[word for i in range(10) for word in (tagged(7 * n + i), VALUE)]), 5),
    "MSET of 10 keys": (lambda n: request(b"MSET", *[word for i in range(10) for word in (key(7 * n + i), VALUE)]), 5),
}


def free_port():
    """Below the ports that the system gives to connections; the node's other ports are above it."""
    for port in range(11_000, 20_000, 20):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) and probe.connect_ex(("127.0.0.1", port + 10_000)):
                return port
    raise SystemExit("instructions: no free port")


def until_it_answers(port, log):
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            link = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
            link.sendall(request(b"SET", b"first", VALUE))
            if link.recv(1000) == b"+OK\r\n":
                return link
            link.close()
        except OSError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"instructions: the node does not answer:\n{log.read_text()}")


def pipelines(link, kind, count):
    command, reply_bytes = KINDS[kind]
    for start in range(0, count, DEPTH):
        link.sendall(b"".join(map(command, range(start, start + DEPTH))))
        left = DEPTH * reply_bytes
        while left > 0:
            left -= len(link.recv(1 << 20))


def collected(binary, kind, count):
    """Instructions of a whole run."""
    port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        files = pathlib.Path(directory)
        coordinator = f"127.0.0.1:{port + 9}"
        (files / "coordinator.toml").write_text(f'listen = "{coordinator}"\nstore = "{files}/store"\nscheme = "1+0"\nnodes = 1\nmemory = "256mb"\n')
        (files / "node.toml").write_text(f'id = 0\nbind = "127.0.0.1"\nport = {port}\nmemory = "256mb"\ncoordinator = ["{coordinator}"]\n')
        settings = ["coordinator", "--config", str(files / "coordinator.toml")]
        subprocess.run([binary, *settings, "--create"], capture_output=True, timeout=TIMEOUT_S, check=False)
        counts = files / "counts"
        with open(files / "log", "wb") as log:
            leader = subprocess.Popen([binary, *settings], stdout=log, stderr=log)
            tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={counts}"]
            node = subprocess.Popen([*tool, binary, "node", "--config", str(files / "node.toml")], stdout=log, stderr=log)
            try:
                link = until_it_answers(port, files / "log")
                pipelines(link, "SET", KEYS)
                pipelines(link, kind, count)
                link.close()
            finally:
                node.terminate()
                node.wait(TIMEOUT_S)
                leader.terminate()
                leader.wait(TIMEOUT_S)
        return int(re.search(r"Collected : (\d+)", counts.read_text())[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", nargs="+", metavar="BINARY")
    parser.add_argument("--commands", type=int, default=4_000)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    asked = parser.parse_args()
    print("command            " + "".join(f"{pathlib.Path(binary).name[-20:]:>22}" for binary in asked.binaries))
    for kind in asked.kinds:
        each = []
        for binary in asked.binaries:
            short, long = (collected(binary, kind, times * asked.commands) for times in (1, 3))
            each.append((long - short) / (2 * asked.commands))
        beside = "".join(f"{count:14.0f}" + (f" ({count / each[0]:5.3f})" if n else "        ") for n, count in enumerate(each))
        print(f"{kind:<19}{beside}", flush=True)


if __name__ == "__main__":
    main()
