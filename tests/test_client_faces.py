"""The client of Paritas from C and from Python: what include/paritas.h and docs/client.md promise."""

import array
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest

from conftest import BINARY, TIMEOUT_S, Background, standing_still, until
from test_large_values import is_owner

ROOT = pathlib.Path(__file__).resolve().parents[1]
C = ROOT / "crates" / "client-c"
# The libraries of crate client-c, beside the binary if nothing else is said.
BUILT = pathlib.Path(os.environ.get("PARITAS_CLIENT_DIR") or pathlib.Path(BINARY).parent).resolve()
LIBRARY = BUILT / "libparitas_client.so"

os.environ.setdefault("PARITAS_CLIENT_LIBRARY", str(LIBRARY))
sys.path.insert(0, str(ROOT / "python"))

import paritas  # noqa: E402  (it needs the lines above)

# One in a stripe, the first one with parts, one with a tail, and one of several rows.
SIZES = [0, 1, 32, 64 << 10, (64 << 10) + 1, 100_000, 1 << 20, 5_000_001]
CLASSES = ["rep:3", "ec:4,2", "eor:3,4"]
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def addresses(cluster):
    return [f"127.0.0.1:{cluster.port + node}" for node in range(cluster.nodes)]


def compile_c(source, to, *more):
    command = ["cc", *WARNINGS, "-g", "-I", str(C / "include"), str(source), "-o", str(to), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return to


def run_program(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=TIMEOUT_S, check=False, **options)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def test_c_keeps_what_the_header_says(cluster, tmp_path):
    libraries = [str(BUILT / "libparitas_client.a"), "-lpthread", "-ldl", "-lm", "-lgcc_s"]
    program = compile_c(C / "tests" / "faces.c", tmp_path / "faces", "-fsanitize=address", *libraries)
    assert run_program(program, ",".join(addresses(cluster))) == "all as the header says\n"


def test_the_example_in_c_reads_with_the_shared_library(cluster, tmp_path):
    program = compile_c(C / "examples" / "read.c", tmp_path / "read", f"-L{BUILT}", "-lparitas_client", f"-Wl,-rpath,{BUILT}")
    for decode, count in ("client", 20), ("server", 0):
        text = run_program(program, addresses(cluster)[0], decode, 1 << 20, 20, 4)
        assert f"{count} decoded here" in text, text


@pytest.mark.parametrize("decode", ["server", "client", "auto"])
def test_values_of_all_sizes_and_classes(cluster, rng, decode):
    with paritas.Client(addresses(cluster), decode=decode) as client:
        assert client.get("python:none") is None
        assert client.get("python:none", into=bytearray(5)) is None
        for size in SIZES:
            for kind in CLASSES:
                value = rng.randbytes(size)
                client.set("python:key", value)
                if size > 64 << 10:
                    assert client.command("PARITAS.REDUNDANCY", "python:key", kind) == "OK"
                operation = client.iget("python:key")
                assert operation.wait() == value and operation.wait() == value, "a result may be asked for twice"
                if decode != "auto":
                    assert operation.phases.decoded_here == (decode == "client" and size > 64 << 10)
                buffer = bytearray(size + 3)
                assert client.get("python:key", into=buffer) == size
                assert buffer == value + bytes(3)
                if size:
                    for get in client.get, lambda *more: client.iget(*more).wait():
                        small = bytearray(size - 1)
                        with pytest.raises(paritas.TooSmall, match=f"{size} bytes, the buffer {size - 1}") as caught:
                            get("python:key", small)
                        assert caught.value.value_bytes == size and not any(small)
        assert client.command("DEL", "python:key") == 1
        stats = client.stats()
        assert (stats.decoded_here > 0) == (decode != "server") and stats.wrong == 0


def test_any_buffer_goes_in_and_out(cluster, rng):
    data = rng.randbytes(800_000)
    whole = numpy.frombuffer(data, dtype=numpy.int64)
    with paritas.Client(addresses(cluster)) as client:
        for value in data, bytearray(data), memoryview(data), memoryview(b"x" + data)[1:], array.array("q", data), whole:
            client.set(memoryview(b"python:buffer"), value)
            assert client.get(b"python:buffer") == data
        read = numpy.zeros_like(whole)
        assert client.get("python:buffer", into=read) == len(data) and (read == whole).all()
        assert client.get("python:buffer", into=memoryview(bytearray(900_000))[7:]) == len(data)
        changed = bytearray(data)
        operation = client.iset("python:buffer", changed)
        changed[:] = bytes(len(data))
        operation.wait()
        assert client.get("python:buffer") == data, "a value is that of the time when it was given"
        for wrong in b"not writable", whole:
            with pytest.raises(ValueError, match="writable"):
                client.get("python:buffer", into=wrong)
        with pytest.raises(ValueError, match="contiguous"):
            client.set("python:buffer", whole[::2])
        for no_buffer in None, 5.5j, object():
            with pytest.raises(TypeError):
                client.set("python:buffer", no_buffer)
        client.set("python:text", "größe")
        assert client.get("python:text") == "größe".encode()
        assert client.command("DEL", "python:buffer", "python:text") == 2


def test_replies_of_commands(cluster):
    with paritas.Client(addresses(cluster)) as client:
        assert client.command("MSET", "{python}1", "one", "{python}2", 5) == "OK"
        assert client.command("INCRBY", "{python}2", 37) == 42
        assert client.command("MGET", "{python}1", "{python}none", "{python}2") == [b"one", None, b"42"]
        assert client.command("PING", key=None) == client.command("PING") == "PONG"
        # No connection is asked for twice what it cannot do.
        for words in [("MULTI",), ("select", 1), ("CLIENT", "REPLY", "OFF"), ("HELLO", 3)]:
            with pytest.raises(ValueError, match="use a Redis client"):
                client.command(*words)
        with pytest.raises(paritas.Refused, match="not an integer") as caught:
            client.command("INCR", "{python}1")
        assert caught.value.code == "ERR"
        assert client.command("DEL", "{python}1", "{python}2") == 2
    with pytest.raises(paritas.Error, match="closed"):
        client.get("key")


def test_what_is_submitted_for_one_key_happens_in_that_order(cluster, rng):
    values = [rng.randbytes(rng.choice([100, 70_000])) for _ in range(10)]
    with paritas.Client(addresses(cluster)) as client:
        operations = []
        for value in values:
            operations += [client.iset("python:order", value), client.iget("python:order"), client.iget("python:order")]
        operations.append(client.icommand("DEL", "python:order"))
        operations.append(client.iget("python:order"))
        results = [operation.wait() for operation in operations]
        wanted = [result for value in values for result in (None, value, value)]
        assert results == [*wanted, 1, None]


def test_as_many_as_allowed_are_under_way_and_one_more_is_busy(cluster, rng):
    values = {f"python:many:{n}": rng.randbytes(rng.choice([10, 100_000, 300_000])) for n in range(100)}
    with paritas.Client(addresses(cluster)) as client:
        under_way, ended = {}, 0

        def end_one():
            operation = paritas.wait_any(list(under_way))
            assert operation.done()
            key = under_way.pop(operation)
            assert operation.wait() == (values[key] if key else None)

        for _ in range(3):
            for key, value in values.items():
                for begin, wanted in (lambda: client.iset(key, value), None), (lambda: client.iget(key), key):
                    while True:
                        try:
                            under_way[begin()] = wanted
                            break
                        except paritas.Busy:
                            end_one()
                            ended += 1
        assert ended >= 100, "64 operations are under way at most"
        while under_way:
            end_one()
        client.command("DEL", *values)


def test_the_limits_and_ends_of_a_client_that_reaches_nobody():
    client = paritas.Client("127.0.0.1:1", deadline_ms=2_000, ops_max=3)
    operations = [client.iget("a"), client.iset("b", "x"), client.icommand("INCR", "c")]
    with pytest.raises(paritas.Busy, match="wait for one of them"):
        client.iget("d")
    assert not operations[0].done()
    with pytest.raises(TimeoutError):
        operations[0].wait(timeout_s=0.01)
    with pytest.raises(TimeoutError):
        paritas.wait_any(operations, timeout_s=0.01)
    # Others go on while a thread waits, so it does not hold the GIL. It also waits for room.
    failed = []

    def get():
        with pytest.raises(paritas.Unreachable, match="nothing has changed"):
            client.get("e")
        failed.append(time.monotonic())

    thread = threading.Thread(target=get)
    began = time.monotonic()
    thread.start()
    turns = 0
    while time.monotonic() < began + 0.2:
        turns += 1
    assert turns > 100 and not failed
    for operation in operations:
        with pytest.raises(paritas.Unreachable):
            operation.wait()
    with pytest.raises(paritas.Error, match="ended well"):
        operations[0].phases  # pylint: disable=pointless-statement
    thread.join(TIMEOUT_S)
    assert failed
    # Who waits when it is closed is told so.
    waiting = client.iget("f")
    waiter = threading.Thread(target=lambda: pytest.raises(paritas.Error, waiting.wait))
    waiter.start()
    client.close()
    waiter.join(TIMEOUT_S)
    assert not waiter.is_alive()
    client.close()
    cancelled = paritas.Client("127.0.0.1:1", deadline_ms=50).iget("g")
    cancelled.cancel()
    with pytest.raises(paritas.Error, match="cancelled"):
        cancelled.wait()


def test_wrong_settings_say_what_may_be_set():
    for address in "", "host", "host:", [], ["host:0"]:
        with pytest.raises(ValueError, match="host:port"):
            paritas.Client(address)
    with pytest.raises(ValueError, match="server, client or auto"):
        paritas.Client("127.0.0.1:1", decode="both")
    with pytest.raises(ValueError, match="encode is server, client or auto"):
        paritas.Client("127.0.0.1:1", encode="both")
    with pytest.raises(ValueError, match="the settings are decode, encode, user, password, deadline_ms"):
        paritas.Client("127.0.0.1:1", deadline=5)
    with pytest.raises(ValueError, match="from 1 to"):
        paritas.Client("127.0.0.1:1", ops_max=0)


def test_a_client_after_a_fork_says_so(cluster):
    with paritas.Client(addresses(cluster)) as client:
        client.set("python:fork", "x")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                client.get("python:fork")
            except paritas.Error as error:
                client.close()
                code = 0 if "after the fork" in str(error) else 2
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert client.get("python:fork") == b"x"


def test_the_password_of_clients(start_cluster, tmp_path):
    secret = tmp_path / "password"
    secret.write_text("open sesame\n", encoding="utf-8")
    cluster = start_cluster(more=["--password-file", str(secret)])
    value = bytes(range(256)) * 1000
    with paritas.Client(addresses(cluster), password="open sesame", decode="client") as client:
        client.set("key", value)
        operation = client.iget("key")
        assert operation.wait() == value and operation.phases.decoded_here
    for password, code in (None, "NOAUTH"), ("wrong", "WRONGPASS"):
        with paritas.Client(addresses(cluster), password=password) as client:
            with pytest.raises(paritas.Refused) as caught:
                client.get("key")
            assert caught.value.code == code


class Reads(Background):
    """Reads values again and again; each must be right. What was not answered is counted."""

    def __init__(self, nodes, values, **settings):
        super().__init__()
        self.client = paritas.Client(nodes, **settings)
        self.values, self.done, self.failures = values, 0, []
        self.start()

    def work(self):
        keys = list(self.values)
        while not self.ending.is_set():
            key = keys[self.done % len(keys)]
            try:
                value = self.client.get(key)
                assert value == self.values[key], f"{key} has a wrong value of {len(value or b'')} bytes"
            except (paritas.Unreachable, paritas.Refused) as error:
                self.failures.append(str(error))
            self.done += 1

    def until_more(self, count):
        before = self.done
        until(lambda: self.done >= before + count or not self.is_alive(), f"{count} more reads")


def written(cluster, rng, count):
    values = {f"key:{n}": rng.randbytes(size) for n, size in zip(range(count), [100, 70_000, 300_000, 1 << 20] * count)}
    with paritas.Client(addresses(cluster), deadline_ms=60_000) as client:
        for operation in [client.iset(key, value) for key, value in values.items()]:
            operation.wait()
    return values


@pytest.mark.parametrize("decode", ["client", "auto"])
def test_every_value_is_right_while_two_nodes_are_killed(start_cluster, rng, decode):
    cluster = start_cluster()
    values = written(cluster, rng, 24)
    # A takeover may take longer on a busy machine than a read waits by default.
    readers = [Reads(addresses(cluster), values, decode=decode, deadline_ms=30_000) for _ in range(2)]
    for reader in readers:
        reader.until_more(20)
    # Node 0 is the one that commands go to.
    dead = cluster.kill(0, 3)
    for reader in readers:
        reader.until_more(30)
    cluster.until_replaced(dead)
    for reader in readers:
        reader.until_more(30)
        reader.stop()
        assert not reader.failures, reader.failures[:3]
        assert reader.client.stats().decoded_here > 0
        reader.client.close()


def test_reads_go_on_while_a_node_stands_still(start_cluster, rng):
    cluster = start_cluster()
    values = written(cluster, rng, 24)
    pids = cluster.pids()
    for node in 4, 0:
        # What only that node can do has to wait for it: to tell where values are that it owns.
        others = {key: value for key, value in values.items() if not is_owner(cluster, node, key)}
        reachable = [address for n, address in enumerate(addresses(cluster)) if n != node]
        reader = Reads(reachable, others, decode="client")
        reader.until_more(20)
        began = time.monotonic()
        with standing_still(pids[node]):
            # The node keeps data of some of these values: other parts are read in its place.
            reader.until_more(2 * len(others))
            until(lambda: time.monotonic() >= began + 0.6, "0.6 s of standing still")
        reader.until_more(20)
        reader.stop()
        assert not reader.failures, reader.failures[:3]
        assert reader.client.stats().replaced > 0
        reader.client.close()


def test_a_write_without_an_answer_is_uncertain(start_cluster):
    cluster = start_cluster()
    with paritas.Client(addresses(cluster)) as client:
        client.set("key", "before")
    with paritas.Client(addresses(cluster)[:1], deadline_ms=300) as client:
        pid = cluster.pids()[0]
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(paritas.Uncertain, match="may have happened"):
                client.set("key", "after")
            with pytest.raises(paritas.Unreachable):
                client.get("key")
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The package, installed from the wheel of this library into a folder of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    environment = {**os.environ, "PYTHON": sys.executable, "WHEELS": str(folder)}
    wheel = run_program(ROOT / "scripts" / "build-wheel", LIBRARY, env=environment).strip()
    assert re.search(r"/paritas-[0-9.]+-py3-none-linux_\w+\.whl$", wheel)
    to = folder / "installed"
    run_program(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--target", to, wheel)
    return to


def test_the_wheel_has_all_that_it_needs(cluster, installed, tmp_path):
    program = f"""
import paritas
assert paritas.__file__.startswith({str(installed)!r}), paritas.__file__
with paritas.Client("127.0.0.1:{cluster.port}") as client:
    client.set("wheel", bytes(200_000))
    print(paritas.__version__, len(client.get("wheel")))
"""
    environment = {name: value for name, value in os.environ.items() if name != "PARITAS_CLIENT_LIBRARY"}
    text = run_program(sys.executable, "-c", program, cwd=tmp_path, env={**environment, "PYTHONPATH": str(installed)})
    version = run_program(BINARY, "--version").split()[-1]
    assert text.split() == [version, "200000"]


def test_the_page_of_the_client_does_what_it_says(cluster, installed, tmp_path):
    page = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert programs
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    for program in programs:
        program = program.replace("127.0.0.1:6379", addresses(cluster)[0]).replace("127.0.0.1:6380", addresses(cluster)[1])
        assert "Phases(request_s=" in run_program(sys.executable, "-c", program, cwd=tmp_path, env=environment)
    example = ROOT / "python" / "examples" / "read.py"
    text = run_program(sys.executable, example, ",".join(addresses(cluster)), 300_001, 10, 3, env=environment)
    assert [line.split(":")[0].strip() for line in text.splitlines()] == ["server", "client", "auto"]
    assert " 0 of 10 decoded here" in text.splitlines()[0] and " 10 of 10 decoded here" in text.splitlines()[1]
    # The table has all settings that the library knows.
    table = re.search(r"## Settings\n.*?\n## ", page, re.DOTALL)[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    with pytest.raises(ValueError) as caught:
        paritas.Client("127.0.0.1:1", other="1")
    known = str(caught.value).split("the settings are ")[1].split(", ")
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(known)
