"""Tells a steward every second how fast the nodes are, in place of nodes that report it themselves as in the paper: the rates of
their links. Runs as a process of its own, in the network namespace of the steward; the last line of standard input counts."""

import json
import socket
import subprocess
import sys
import threading
import time

PERIOD_S = 1.0


class Heartbeats:
    """The process. `mounts` are those whose steward is to know."""

    def __init__(self, stage, mounts):
        self.stage, self.mounts = stage, mounts
        command = [*stage.bridge.command(0), sys.executable, __file__, stage.steward_address]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)

    def tell(self, bits, slow, divisor):
        """The links' rates, now and until the next call."""
        rates = {self.stage.node(i): int(bits / (divisor if i in slow else 1) / 8) for i in range(self.stage.nodes)}
        print(json.dumps({"mounts": self.mounts, "rates": rates}), file=self.process.stdin, flush=True)

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def command(words):
    return f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)


def main():
    host, _, port = sys.argv[1].rpartition(":")
    steward = socket.create_connection((host, int(port)))
    answers = steward.makefile("r", encoding="utf-8")
    told = []

    def listen():
        for line in sys.stdin:
            told[:] = [json.loads(line)]
        told[:] = [None]

    threading.Thread(target=listen, daemon=True).start()
    while True:
        time.sleep(PERIOD_S)
        if told == [None]:
            return
        for now in told[:]:
            samples = [word for node, rate in now["rates"].items() for word in (node, str(rate), "1000000000", "0")]
            for mount in now["mounts"]:
                steward.sendall(command(["FILES.REPORT", mount, *samples]).encode())
                answer = answers.readline()
                assert answer.startswith(("+", ":")), answer


if __name__ == "__main__":
    main()
