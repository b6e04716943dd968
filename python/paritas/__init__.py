"""A client of Paritas. It reads large values from the nodes that keep their parts, and puts them together itself. It also encodes
them and writes their parts, if the nodes let it.

    import paritas

    with paritas.Client("127.0.0.1:6379") as client:
        client.set("key", bytes(1 << 20))
        operation = client.iget("key")
        value = operation.wait()
        print(operation.phases)

docs/client.md in the project's repository says what is promised.
"""

from ._client import Client, Operation, Phases, Stats, wait_any
from ._errors import Busy, Error, Refused, TooSmall, Uncertain, Unreachable
from ._library import VERSION as __version__

__all__ = [
    "Busy",
    "Client",
    "Error",
    "Operation",
    "Phases",
    "Refused",
    "Stats",
    "TooSmall",
    "Uncertain",
    "Unreachable",
    "__version__",
    "wait_any",
]
