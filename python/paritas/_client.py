"""`Client` and `Operation`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from typing import Any, Iterator, NamedTuple, Optional, Sequence, Union, overload

from . import _library as lib
from ._errors import Busy, Error, Refused, TooSmall, Uncertain, Unreachable
from ._library import library

Key = Union[str, bytes, bytearray, memoryview]
# What a command may be made of. `Any` stands for everything with the buffer protocol.
Word = Union[str, int, float, bytes, bytearray, memoryview, Any]
Reply = Union[None, bytes, str, int, list, Error]

# A wait is cut into pieces of this length, so that Ctrl-C and `close` end it.
_PIECE_MS = 100
_VERSION = 1000


class Phases(NamedTuple):
    """Where the time of an operation went."""

    request_s: float
    """From its submission until the first command was written."""
    coding_s: float
    """Sums, encoding and decoding in this process."""
    wait_s: float
    """The rest."""
    decoded_here: bool
    """This process has put the value together from its parts."""
    encoded_here: bool
    """This process has cut and encoded the value, and sent its parts."""


class Stats(NamedTuple):
    """Counts since the client was opened: `paritas_counts` of include/paritas.h."""

    decoded_here: int
    unit_bytes: int
    replaced: int
    replaced_bytes: int
    wrong: int
    located_again: int
    by_node: int
    encoded_here: int
    put_bytes: int
    encoded_by_node: int


def _problem(status: int) -> Exception:
    text = library.text()
    kinds = {
        lib.REFUSED: Refused,
        lib.UNCERTAIN: Uncertain,
        lib.UNREACHABLE: Unreachable,
        lib.BUSY: Busy,
        lib.BAD_ARGUMENT: ValueError,
    }
    return kinds.get(status, Error)(text)


def _bytes_of(word: Word) -> Any:
    """A word as an object with bytes. Only text and numbers are copied."""
    if isinstance(word, str):
        return word.encode()
    if isinstance(word, bool) or word is None:
        raise TypeError(f"{word!r} is no word of a command: say what it stands for, '1' for example")
    if isinstance(word, (int, float)):
        return repr(word).encode()
    return word


def _value(reply: Any) -> Reply:
    """A reply as an object of Python."""
    kind = library.reply_type(reply)
    if kind == lib.INTEGER:
        return library.reply_integer(reply)
    if kind == lib.ARRAY:
        return [_value(library.reply_element(reply, at)) for at in range(library.reply_count(reply))]
    if kind == lib.NULL:
        return None
    length = ctypes.c_size_t()
    address = library.reply_bytes(reply, ctypes.byref(length))
    data = ctypes.string_at(address, length.value) if length.value else b""
    if kind == lib.STRING:
        return data
    text = data.decode("utf-8", "replace")
    return Refused(text) if kind == lib.ERROR else text


def _copy_into(reply: Any, into: Any) -> Optional[int]:
    """Copies a value into a buffer. Its length, or None if there is no value."""
    if library.reply_type(reply) == lib.NULL:
        return None
    length = ctypes.c_size_t()
    address = library.reply_bytes(reply, ctypes.byref(length))
    with lib.Buffer(into, is_written=True) as buffer:
        if length.value > buffer.bytes:
            raise TooSmall(length.value, buffer.bytes)
        if length.value:
            ctypes.memmove(buffer.address, address, length.value)
    return length.value


class Operation:
    """An operation under way. One thread at a time uses it."""

    def __init__(self, client: Client, number: int, into: Any = None):
        self._client, self._number, self._into = client, number, into
        self._is_over = False
        self._result: Any = None
        self._problem: Optional[BaseException] = None
        self._phases: Optional[Phases] = None

    def done(self) -> bool:
        """Whether it has ended. It does not wait."""
        return self._is_over or self._wait_piece(0)

    def wait(self, timeout_s: Optional[float] = None) -> Any:
        """What it has returned: bytes or None of `iget`, the length with `into=`, None of `iset`, the reply of a command. It
        raises what the operation has failed with; and TimeoutError if it has not ended in this time. It goes on then."""
        for limit_ms in _pieces(timeout_s):
            if self._is_over or self._wait_piece(limit_ms):
                return self._outcome()
        raise TimeoutError(f"the operation has not ended in {timeout_s} s, and goes on")

    def cancel(self) -> None:
        """Nobody wants its result. It may happen all the same."""
        if not self._is_over:
            self._end(None, Error("the operation was cancelled"))
            self._client._cancel(self._number)

    @property
    def phases(self) -> Phases:
        """Where its time went. It must have ended well."""
        if self._phases is None:
            raise Error("phases are known of an operation that has ended well: wait for it")
        return self._phases

    def _outcome(self) -> Any:
        if self._problem is not None:
            raise self._problem
        return self._result

    def _wait_piece(self, limit_ms: int) -> bool:
        reply = ctypes.c_void_p()
        with self._client._in_call() as handle:
            status = library.wait(handle, self._number, limit_ms, ctypes.byref(reply))
            problem = None if status in (lib.OK, lib.NOT_YET) else _problem(status)
        if status == lib.NOT_YET:
            return False
        self._on_end(reply, problem)
        return True

    def _on_end(self, reply: ctypes.c_void_p, problem: Optional[Exception]) -> None:
        if problem is not None:
            return self._end(None, problem)
        try:
            phases = lib.PhasesStruct()
            library.reply_phases(reply, ctypes.byref(phases), ctypes.sizeof(phases))
            spans = (phases.request_ns / 1e9, phases.coding_ns / 1e9, phases.wait_ns / 1e9)
            self._phases = Phases(*spans, bool(phases.decoded_here), bool(phases.encoded_here))
            result = _value(reply) if self._into is None else _copy_into(reply, self._into)
            self._end(result, None)
        except Exception as error:  # The buffer was too small, or there is no memory.
            self._end(None, error)
        finally:
            library.reply_free(reply)

    def _end(self, result: Any, problem: Optional[BaseException]) -> None:
        self._result, self._problem, self._into = result, problem, None
        self._is_over = True

    def __del__(self):
        with contextlib.suppress(Exception):
            if not self._is_over:
                self._client._cancel(self._number)


def _pieces(timeout_s: Optional[float]) -> Iterator[int]:
    """Lengths of waits, in milliseconds, until the time is over."""
    if timeout_s is None:
        while True:
            yield _PIECE_MS
    until = time.monotonic() + timeout_s
    while True:
        left_ms = max(0, int((until - time.monotonic()) * 1000 + 0.999))
        yield min(left_ms, _PIECE_MS)
        if left_ms == 0:
            return


def wait_any(operations: Sequence[Operation], timeout_s: Optional[float] = None) -> Operation:
    """The first of these operations that has ended; its `wait` then returns at once. All are of one client. It raises
    TimeoutError if none has ended in this time."""
    operations = list(operations)
    if not operations:
        raise ValueError("wait_any needs an operation")
    client = operations[0]._client
    if any(operation._client is not client for operation in operations):
        raise ValueError("wait_any needs operations of one client")
    for operation in operations:
        if operation._is_over:
            return operation
    numbers = (ctypes.c_uint64 * len(operations))(*[operation._number for operation in operations])
    for limit_ms in _pieces(timeout_s):
        index, reply = ctypes.c_size_t(), ctypes.c_void_p()
        with client._in_call() as handle:
            status = library.wait_any(handle, numbers, len(operations), limit_ms, ctypes.byref(index), ctypes.byref(reply))
            problem = None if status in (lib.OK, lib.NOT_YET) else _problem(status)
        if problem and status in (lib.NO_OPERATION, lib.BAD_ARGUMENT, lib.INTERNAL):
            raise problem
        if status != lib.NOT_YET:
            operation = operations[index.value]
            operation._on_end(reply, problem)
            return operation
    raise TimeoutError(f"no operation has ended in {timeout_s} s, and all go on")


class Client:
    """A client of a cluster. Several threads may use it at once; the GIL is released while they wait.

    `addresses` are those of nodes, `"host:port"`, of the port for any key: one text with commas, or a sequence. Further
    settings (`ops_max=128`) have the names of docs/client.md.
    """

    def __init__(
        self,
        addresses: Union[str, Sequence[str]],
        *,
        decode: str = "auto",
        encode: str = "auto",
        user: Optional[str] = None,
        password: Optional[str] = None,
        deadline_ms: int = 10_000,
        **settings: Union[int, str],
    ):
        self._handle: Optional[int] = None
        self._process = os.getpid()
        self._calls = 0
        self._is_closing = False
        self._idle = threading.Condition()
        named = {"decode": decode, "encode": encode, "user": user, "password": password, "deadline_ms": deadline_ms}
        all_of_them = {**named, **settings}
        texts = []
        for name, value in all_of_them.items():
            if value is not None:
                texts += [name.encode(), str(value).encode()]
        for text in texts:
            if b"\0" in text:
                raise ValueError("a setting must not contain a zero byte")
        array = (ctypes.c_char_p * (len(texts) + 1))(*texts, None)
        joined = addresses if isinstance(addresses, str) else ",".join(addresses)
        handle = ctypes.c_void_p()
        status = library.open(_VERSION, joined.encode(), array, ctypes.byref(handle))
        if status != lib.OK:
            raise _problem(status)
        self._handle = handle.value

    @overload
    def get(self, key: Key) -> Optional[bytes]: ...

    @overload
    def get(self, key: Key, into: Any) -> Optional[int]: ...

    def get(self, key: Key, into: Any = None) -> Union[None, bytes, int]:
        """The value of a key, or None. With `into`, a writable buffer: the value is copied there, and its length returned;
        TooSmall has the length of a value that is longer."""
        return self._blocking(lambda: self.iget(key, into))

    def set(self, key: Key, value: Any) -> None:
        """Sets the value of a key, from any buffer: bytes, bytearray, memoryview, an array of numpy; or text."""
        return self._blocking(lambda: self.iset(key, value))

    def command(self, *words: Word, key: Optional[int] = 1) -> Reply:
        """Any command, its name first, and its reply. `key` says which word is the key, in whose order it happens; None: the
        order does not matter."""
        return self._blocking(lambda: self.icommand(*words, key=key))

    def iget(self, key: Key, into: Any = None) -> Operation:
        """Begins `get`. The buffer is written to by the `wait` or `done` that finds it ended."""
        number = ctypes.c_uint64()
        with lib.Buffer(_bytes_of(key)) as at:
            self._begin(library.iget, at.address, at.bytes, ctypes.byref(number))
        return Operation(self, number.value, into)

    def iset(self, key: Key, value: Any) -> Operation:
        """Begins `set`. The value may be changed as soon as this returns."""
        number = ctypes.c_uint64()
        with lib.Buffer(_bytes_of(key)) as at, lib.Buffer(_bytes_of(value)) as data:
            self._begin(library.iset, at.address, at.bytes, data.address, data.bytes, ctypes.byref(number))
        return _Write(self, number.value)

    def icommand(self, *words: Word, key: Optional[int] = 1) -> Operation:
        """Begins `command`."""
        number = ctypes.c_uint64()
        pointers, lengths, buffers = lib.words_of([_bytes_of(word) for word in words])
        at = key if key is not None and key < len(words) else 0
        try:
            self._begin(library.icommand, len(words), pointers, lengths, at, ctypes.byref(number))
        finally:
            for buffer in buffers:
                buffer.release()
        return Operation(self, number.value)

    def stats(self) -> Stats:
        """Counts so far."""
        counts = lib.CountsStruct()
        with self._in_call() as handle:
            status = library.stats(handle, ctypes.byref(counts), ctypes.sizeof(counts))
            if status != lib.OK:
                raise _problem(status)
        return Stats(*[getattr(counts, name) for name in Stats._fields])

    def close(self) -> None:
        """Ends it. What is under way ends without a result, and writes among it may happen. Threads that wait get an Error."""
        if self._process != os.getpid():
            return
        with self._idle:
            self._is_closing = True
            while self._calls:
                self._idle.wait()
            handle, self._handle = self._handle, None
        if handle is not None:
            library.close(handle)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self):
        with contextlib.suppress(Exception):
            self.close()

    @contextlib.contextmanager
    def _in_call(self) -> Iterator[int]:
        """The handle, which is not freed within it."""
        # Before the lock: in the child of a fork, a thread that is not there may hold it.
        if self._process != os.getpid():
            raise Error("the client was opened by another process: open one after the fork")
        with self._idle:
            if self._is_closing or self._handle is None:
                raise Error("the client is closed")
            self._calls += 1
            handle = self._handle
        try:
            yield handle
        finally:
            with self._idle:
                self._calls -= 1
                if not self._calls:
                    self._idle.notify_all()

    def _begin(self, function: Any, *arguments: Any) -> None:
        with self._in_call() as handle:
            status = function(handle, *arguments)
            if status != lib.OK:
                raise _problem(status)

    def _blocking(self, begin: Any) -> Any:
        while True:
            try:
                return begin().wait()
            except Busy:
                with self._in_call() as handle:
                    library.wait_room(handle, _PIECE_MS)

    def _cancel(self, number: int) -> None:
        with contextlib.suppress(Error):
            with self._in_call() as handle:
                library.cancel(handle, number)


class _Write(Operation):
    """A SET: its reply says nothing more than that it has happened."""

    def _end(self, result: Any, problem: Optional[BaseException]) -> None:
        super()._end(None, problem)
