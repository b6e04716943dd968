"""The greeting between processes of a cluster (docs/formats/greeting.md), written from its page."""

import hashlib
import hmac
import os
import struct
from dataclasses import dataclass, field, replace

MAGIC = b"\xb7PRT"
CALL, ANSWER, PROOF, REFUSAL = 1, 2, 3, 4
NODE, SUPERVISOR, OPERATOR, COORDINATOR = 1, 2, 3, 4
REASONS = {1: "no secret", 2: "other secret", 3: "version", 4: "cluster", 5: "process", 6: "role"}
FIXED = struct.Struct("<HHQ16sIBBQHQHQQ")


def secret_id(secret):
    """The short name of a secret."""
    if not secret:
        return 0
    return max(1, int.from_bytes(hmac.digest(secret, b"paritas: the id of a secret", hashlib.sha256)[:4], "little"))


@dataclass
class Greeting:
    """One end's."""

    low: int = 0
    high: int = 0xFFFF
    features: int = 0
    nonce: bytes = field(default_factory=lambda: os.urandom(16))
    secret: int = 0
    role: int = NODE
    channel: int = 0
    cluster: int = 0
    node: int = 0
    incarnation: int = 0
    to_node: int = 0
    to_incarnation: int = 0
    session: int = 1
    build: bytes = b"test"
    ended: tuple = ()

    def body(self):
        fixed = FIXED.pack(self.low, self.high, self.features, self.nonce, self.secret, self.role, self.channel, self.cluster,
                           self.node, self.incarnation, self.to_node, self.to_incarnation, self.session)
        ended = b"".join(struct.pack("<HQ", *process) for process in self.ended)
        return fixed + bytes([len(self.build)]) + self.build + struct.pack("<H", len(self.ended)) + ended

    @classmethod
    def read(cls, body):
        names = list(cls.__dataclass_fields__)
        return cls(**dict(zip(names, FIXED.unpack_from(body))))


def packet(kind, body, more=0):
    return MAGIC + struct.pack("<HB", 7 + len(body) + more, kind) + body


def receive(stream):
    """Kind and body of the next packet; `None` if the connection has ended."""
    try:
        head = exactly(stream, 7)
    except (EOFError, ConnectionResetError):
        return None
    assert head[:4] == MAGIC, head
    length, kind = struct.unpack("<HB", head[4:])
    return kind, exactly(stream, length - 7)


def exactly(stream, count):
    received = b""
    while len(received) < count:
        part = stream.recv(count - len(received))
        if not part:
            raise EOFError
        received += part
    return received


def proof(secret, who, call, said):
    return hmac.digest(secret, b"paritas: the " + who + call + said, hashlib.sha256)


def call(stream, greeting, secret, named=None):
    """Calls. Returns the other end's greeting, what was sent, and the proof that is to follow; or why it is refused. `named`:
    the secret whose name the call has, if the caller does not know it."""
    greeting = replace(greeting, secret=secret_id(named or secret))
    sent = packet(CALL, greeting.body())
    stream.sendall(sent)
    came = receive(stream)
    if came is None:
        return "closed"
    kind, body = came
    if kind == REFUSAL:
        return REASONS[body[0]]
    assert kind == ANSWER, kind
    said, theirs = packet(ANSWER, body[:-32], 32), body[-32:]
    if named is None:
        assert hmac.compare_digest(theirs, proof(secret, b"called", sent, said)), "the answer is no proof"
    return Greeting.read(body), sent, packet(PROOF, proof(secret, b"caller", sent, said))


def known(stream, greeting, secret):
    """Calls, and proves. Returns the other end's greeting."""
    theirs, _, follows = call(stream, greeting, secret)
    stream.sendall(follows)
    return theirs


def answer(stream, secret, role=COORDINATOR):
    """Answers a call as a process without the secret does, or with it."""
    kind, body = receive(stream)
    assert kind == CALL, kind
    theirs = Greeting.read(body)
    own = replace(theirs, role=role, nonce=os.urandom(16), node=0, incarnation=0, to_node=theirs.node,
                  to_incarnation=theirs.incarnation)
    said = packet(ANSWER, own.body(), 32)
    stream.sendall(said + proof(secret, b"called", packet(CALL, body), said))
    return theirs
