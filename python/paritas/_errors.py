"""What a call raises. Wrong arguments raise ValueError or TypeError."""


class Error(Exception):
    """An operation or a client has failed."""


class Refused(Error):
    """A node has refused the operation with this text. GET and SET have not happened; of another command a part may have."""

    @property
    def code(self) -> str:
        """The first word of the text: `OOM`, `WRONGTYPE`, `NOAUTH` …"""
        return str(self).split(" ", 1)[0]


class Uncertain(Error):
    """The operation may have happened, or may happen yet."""


class Unreachable(Error):
    """No node has answered in time. Nothing has changed."""


class Busy(Error):
    """As many operations as `ops_max` are under way. Nothing was begun: wait for one of them."""


class TooSmall(Error, ValueError):
    """The value is longer than the buffer. The buffer is as it was."""

    def __init__(self, value_bytes: int, buffer_bytes: int):
        super().__init__(f"the value has {value_bytes} bytes, the buffer {buffer_bytes}")
        self.value_bytes = value_bytes
        self.buffer_bytes = buffer_bytes
