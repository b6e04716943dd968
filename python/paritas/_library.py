"""The library of C, and its functions as include/paritas.h declares them. Calls release the GIL."""

import ctypes
import os
import pathlib
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any, Optional

VERSION = "0.1.0"
NAME = "libparitas_client.so"
# Another library than the one beside this file: for who builds it himself.
PLACE = "PARITAS_CLIENT_LIBRARY"

OK, NO_VALUE, NOT_YET, REFUSED, UNCERTAIN, UNREACHABLE, BUSY, TOO_SMALL, NO_OPERATION, BAD_ARGUMENT, SYSTEM, INTERNAL = range(12)
NULL, STRING, TEXT, INTEGER, ARRAY, ERROR = range(6)


class PhasesStruct(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in ("request_ns", "coding_ns", "wait_ns", "decoded_here", "encoded_here")]


class CountsStruct(ctypes.Structure):
    _fields_ = [
        (name, c_uint64)
        for name in (
            "decoded_here",
            "unit_bytes",
            "replaced",
            "replaced_bytes",
            "wrong",
            "located_again",
            "by_node",
            "encoded_here",
            "put_bytes",
            "encoded_by_node",
        )
    ]


_KEY = [c_void_p, c_void_p, c_size_t]
_WORDS = [c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_size_t), c_size_t]
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "error": (c_char_p, []),
    "status_name": (c_char_p, [c_int]),
    "version": (c_uint32, []),
    "open": (c_int, [c_uint32, c_char_p, POINTER(c_char_p), POINTER(c_void_p)]),
    "close": (None, [c_void_p]),
    "stats": (c_int, [c_void_p, POINTER(CountsStruct), c_size_t]),
    "iget": (c_int, [*_KEY, POINTER(c_uint64)]),
    "iset": (c_int, [*_KEY, c_void_p, c_size_t, POINTER(c_uint64)]),
    "icommand": (c_int, [*_WORDS, POINTER(c_uint64)]),
    "test": (c_int, [c_void_p, c_uint64, POINTER(c_void_p)]),
    "wait": (c_int, [c_void_p, c_uint64, c_int64, POINTER(c_void_p)]),
    "wait_any": (c_int, [c_void_p, POINTER(c_uint64), c_size_t, c_int64, POINTER(c_size_t), POINTER(c_void_p)]),
    "wait_room": (c_int, [c_void_p, c_int64]),
    "cancel": (c_int, [c_void_p, c_uint64]),
    "reply_free": (None, [c_void_p]),
    "reply_type": (c_int, [c_void_p]),
    "reply_bytes": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "reply_integer": (c_int64, [c_void_p]),
    "reply_count": (c_size_t, [c_void_p]),
    "reply_element": (c_void_p, [c_void_p, c_size_t]),
    "reply_phases": (c_int, [c_void_p, POINTER(PhasesStruct), c_size_t]),
}


class Library:
    """The functions by their names without `paritas_`."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, path: str):
        loaded = ctypes.CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(loaded, "paritas_" + name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def text(self) -> str:
        """What the last failed call of this thread has said."""
        return self.error().decode("utf-8", "replace")


def _load() -> Library:
    beside = pathlib.Path(__file__).with_name(NAME)
    path = os.environ.get(PLACE) or str(beside)
    try:
        return Library(path)
    except OSError as error:
        raise ImportError(
            f"the library of Paritas cannot be loaded ({error}): install the wheel that scripts/build-wheel makes, "
            f"or set {PLACE} to the path of {NAME}"
        ) from error


library = _load()

# A pointer to a buffer of any kind, also of one that must not be written to, which ctypes alone cannot give.
_SIMPLE, _WRITABLE = 0, 1


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, POINTER(_PyBuffer), c_int]
_get_buffer.restype = c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [POINTER(_PyBuffer)]
_release_buffer.restype = None


class Buffer:
    """Bytes of an object, where they lie: `address` and `bytes`, until `release`."""

    __slots__ = ("_view", "address", "bytes")

    def __init__(self, owner: Any, is_written: bool = False):
        self._view: Optional[_PyBuffer] = None
        view = _PyBuffer()
        try:
            _get_buffer(owner, ctypes.byref(view), _WRITABLE if is_written else _SIMPLE)
        except (BufferError, ValueError) as error:
            kind = "contiguous and writable" if is_written else "contiguous"
            raise ValueError(f"a buffer that is {kind} is needed: {error}") from error
        self._view, self.address, self.bytes = view, view.buf, view.len

    def release(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            _release_buffer(ctypes.byref(view))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    def __del__(self):
        self.release()


def words_of(words):
    """Arrays of pointers and lengths, and the buffers that must stay until the call has ended."""
    buffers = [Buffer(word) for word in words]
    pointers = (c_void_p * len(words))(*[buffer.address for buffer in buffers])
    lengths = (c_size_t * len(words))(*[buffer.bytes for buffer in buffers])
    return pointers, lengths, buffers
