"""The client library of Paritas in a storm: it reads large values from their parts, and writes them there (docs/client.md)."""

import os
import pathlib
import sys

import redis

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The library lies beside the program, if both were built.
BESIDE = pathlib.Path(os.environ.get("PARITAS_BIN", ROOT / "target/release/paritas")).parent / "libparitas_client.so"
# Milliseconds without progress after which the library gives an operation up; longer than a takeover.
DEADLINE_MS = 8_000


def is_there():
    return BESIDE.exists()


class EngineLink:
    """One client of the library. Its operations have the replies and the errors of a stock client."""

    def __init__(self, addresses, seed):
        os.environ.setdefault("PARITAS_CLIENT_LIBRARY", str(BESIDE))
        if str(ROOT / "python") not in sys.path:
            sys.path.insert(0, str(ROOT / "python"))
        import paritas

        self.paritas = paritas
        some = ",".join(f"{host}:{port}" for host, port in addresses)
        # Every third is left to choose.
        way = "auto" if seed % 3 == 0 else "client"
        self.client = paritas.Client(some, encode=way, decode=way, deadline_ms=DEADLINE_MS)

    def execute_command(self, *words):
        try:
            if words[0] == "GET":
                return text(self.client.iget(words[1]).wait())
            return text(self.client.icommand(*words).wait())
        except self.paritas.Refused as error:
            raise redis.ResponseError(str(error)) from error
        except self.paritas.Unreachable as error:
            # Nothing has happened.
            raise redis.ResponseError("TRYAGAIN unreachable") from error
        except self.paritas.Uncertain as error:
            raise redis.ConnectionError(str(error)) from error

    def stats(self):
        return self.client.stats()

    def close(self):
        self.client.close()


def text(reply):
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
