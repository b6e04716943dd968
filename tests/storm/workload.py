"""One client of a storm: a process with one stock client, which records each operation with its call and return.

A line of a history: `key client operation argument call_ns return_ns result`. A `-` as return and result means that the outcome
is unknown: the operation may have been done at any time since its call, or never. A result that begins with `!` is a clear
refusal: the operation was not done."""

import random
import signal
import socket
import time

import engine
import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException
from redis.retry import Retry

# Seconds after which a client gives up waiting for an answer. Some are longer than every pause, so that the answers of
# a node that wakes up are received.
TIMEOUTS_S = (0.3, 1.0, 8.0)
# Probability that a client changes to another node: some clients of a node that slept must not have noticed it.
ROAMS = 0.04
# Probability of a pipeline, the most bytes that it writes before it reads, and the pauses before it reads. The node must
# answer all of it within a time that is longer than every fault.
PIPELINES = 0.02
PIPELINE_BYTES_MAX = 16_000_000
LATE_S = (0.0, 0.0, 0.1, 1.0, 4.0)
ANSWERED_WITHIN_S = 60.0
# Part of a pipeline's values that are large, where any are.
PIPELINE_LARGE = 0.1
# Errors that promise that nothing was done. For a read any error does.
REFUSALS = ("CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "OOM")
# redis-py removes the first word of some errors and uses a class instead.
CLASSES = {redis.exceptions.ClusterDownError: "CLUSTERDOWN", redis.exceptions.TryAgainError: "TRYAGAIN",
           redis.exceptions.OutOfMemoryError: "OOM"}
# redis-py converts the replies of commands in different ways, so that a storm reads raw replies.
COMMANDS = ("GET", "SET", "DEL", "INCR", "MGET", "MSET", "PEXPIRE", "EXPIRE")
# Part of the operations on groups, and of increments, that are transactions: of all keys of the group, or under WATCH.
TRANSACTIONS = 0.5
# Part of the increments that a script does, and the script.
SCRIPTS = 0.3
COUNT = """
local old = tonumber(redis.call('GET', KEYS[1]) or '0')
local new = redis.call('INCR', KEYS[1])
if new ~= old + 1 then return redis.error_reply('TORN from ' .. old .. ' to ' .. new) end
return new
"""
# Part of the increments that are `gets` and `cas` at the port of memcached, and its distance from the port for any key.
BY_CAS = 0.3
MEMCACHED_OFFSET = 2_000
# Part of the operations on registers that the client library of Paritas does, if it was built.
BY_ENGINE = 0.3
# Part of their values that are large, where any are.
ENGINE_LARGE = 0.2
# Counters are set to multiples of this, so that increments after different SETs cannot be confused.
COUNTER_STEP = 1_000_000
# Operations by kind of key. Each is drawn as often as it appears here.
MIX = {
    "r": ["get"] * 5 + ["set"] * 4 + ["swap"] * 2 + ["setnx"] * 2 + ["del"] * 2,
    "c": ["get"] * 2 + ["incr"] * 7 + ["set", "del"],
    "e": ["get"] * 5 + ["setpx"] * 3 + ["pexpire"] * 2 + ["set", "swap", "del"],
    "g": ["mget"] * 3 + ["get"] * 2 + ["set"] * 4 + ["del"],
}


# The part of the values that lie in parts, and the most bytes that one has (`--large`, `--large-max`).
LARGE = {"part": 0.01, "bytes_max": 4_000_000}
# Their lengths, each half as often as the one before.
LARGE_BYTES = (66_000, 130_000, 500_000, 1_500_000, 4_000_000, 16_000_000, 64_000_000)


def is_large(number):
    return LARGE["part"] > 0 and random.Random(f"large {number}").random() < LARGE["part"]


def value_of(number):
    """The value with this number: any length, and bytes that a reader can check."""
    draw = random.Random(number)
    if is_large(number):
        lengths = [length for length in LARGE_BYTES if length <= LARGE["bytes_max"]]
        weights = [1 / 2**n for n in range(len(lengths))]
        length = draw.choices(lengths, weights)[0] + draw.randrange(2_000)
        unit = f"{number:x}."[::-1]
        return f"{number}:" + unit * (length // len(unit))
    length = draw.choice([0, draw.randrange(40), draw.randrange(400), draw.randrange(3_000)])
    return f"{number}:" + f"{number:x}."[::-1] * (length // 8)


def number_in(value):
    """The entry in a history for a value that was read."""
    if value is None:
        return "nil"
    if not isinstance(value, str):
        return "corrupt"
    number = value.split(":", 1)[0]
    return number if number.isdecimal() and number.isascii() and len(number) < 20 and value == value_of(int(number)) else "corrupt"


def keys_of_round(prefix):
    """Names and kinds of the keys that all clients share."""
    return [f"{kind}:{prefix}:{n}" for kind, count in (("r", 6), ("c", 6), ("e", 4), ("g", 3)) for n in range(count)]


def members(key):
    """The keys of a group, which are in one slot and are only written together."""
    return [f"{{{key}}}{member}" for member in "abc"]


class Client:
    """Draws operations, carries them out one at a time, and records them."""

    def __init__(self, name, connect, seed, keys, standing, history, ledger, addresses=()):
        self.name, self.connect, self.keys, self.standing = name, connect, keys, standing
        self.engine = engine.EngineLink(addresses, name) if addresses else None
        self.draw = random.Random(f"{seed}/{name}")
        self.history, self.ledger = history, ledger
        self.link = None
        self.numbers = 0
        self.noted = []
        # Keys that only this client writes, and the number of the value that each has.
        self.own = {}

    def run(self, ending, rate, ledger_prefix, ledger_room):
        while not ending.is_set():
            self.pace(rate)
            dice = self.draw.random()
            if dice < 0.15 and len(self.noted) < ledger_room:
                self.note(ledger_prefix)
            elif dice < 0.2 and self.noted:
                self.look_up(*self.draw.choice(self.noted))
            elif dice < 0.23 and self.standing:
                self.look_up(*self.draw.choice(self.standing))
            elif dice > 1 - PIPELINES:
                self.pipeline(ledger_prefix, ledger_room)
            else:
                key = self.draw.choice(self.keys)
                self.one(key, self.draw.choice(MIX[key[0]]))
        self.hang_up()
        self.end_engine()

    def pace(self, rate):
        time.sleep(self.draw.expovariate(rate))

    def new_number(self, large=1.0):
        """A number that no other value has. `large`: the part of those with large values that is used."""
        while True:
            self.numbers += 1
            number = self.name * 10_000_000 + self.numbers
            if not is_large(number) or self.draw.random() < large:
                return number

    def large_number(self):
        while not is_large(number := self.new_number()):
            pass
        return number

    def one(self, key, operation):
        by_engine = self.engine and key[0] == "r" and operation != "del" and self.draw.random() < BY_ENGINE
        # MSET takes no large values.
        number = self.new_number(large=0.0 if key[0] == "g" else 1.0)
        if by_engine and LARGE["part"] > 0 and self.draw.random() < ENGINE_LARGE:
            number = self.large_number()
        argument, command, read = self.command(key, operation, number)
        is_read = operation in ("get", "mget")
        call = time.monotonic_ns()
        if self.draw.random() < SCRIPTS and operation == "incr":
            done, returned = self.attempt(self.counted_by_script(key), is_read)
        elif self.draw.random() < BY_CAS and operation == "incr":
            done, returned = self.attempt(self.by_cas(key), is_read)
        elif by_engine:
            done, returned = self.by_engine(command, is_read)
        elif self.draw.random() < TRANSACTIONS and operation == "incr":
            done, returned = self.attempt(self.watched(key), is_read)
        elif self.draw.random() < TRANSACTIONS and key[0] == "g" and operation != "get":
            done, returned = self.attempt(self.in_transaction(operation, command), is_read)
        else:
            done, returned = self.attempt(lambda link: link.execute_command(*command), is_read)
        self.note_result(key, operation, argument, read, call, done, returned)

    def by_engine(self, command, is_read):
        """The same by the client library. It has connections of its own, and goes on when one ends."""
        try:
            return [self.engine.execute_command(*command)], time.monotonic_ns()
        except redis.ResponseError as error:
            done = self.outcome(error, is_read)
            return done, None if done is None else time.monotonic_ns()
        except redis.ConnectionError:
            return None, None

    def end_engine(self):
        if self.engine:
            counts = self.engine.stats()
            for name in ("encoded_here", "encoded_by_node", "decoded_here"):
                print("engine", getattr(counts, name), name, file=self.ledger)
            self.engine.close()

    @staticmethod
    def in_transaction(operation, command):
        """MGET, MSET or DEL of a group as a transaction with a command for each key, whose reply is that of the one command."""
        words = command[1:]
        each = {
            "mget": [("GET", key) for key in words],
            "set": [("SET", key, value) for key, value in zip(words[::2], words[1::2])],
            "del": [("DEL", key) for key in words],
        }[operation]

        def run(link):
            if not hasattr(link, "connection"):
                # The cluster-aware client has other calls for this.
                return link.execute_command(*command)
            pipe = with_raw_replies(link.pipeline(transaction=True))
            for one in each:
                pipe.execute_command(*one)
            replies = pipe.execute()
            return sum(map(int, replies)) if operation == "del" else replies

        return run

    @staticmethod
    def counted_by_script(key):
        """INCR as a script that reads, compares and writes. Its replies show if it was applied twice, or in part."""

        def run(link):
            return link.execute_command("EVAL", COUNT, 1, key)

        return run

    @staticmethod
    def watched(key):
        """INCR in a transaction that must not run if the counter has changed since it was read."""

        def run(link):
            if not hasattr(link, "connection"):
                return link.execute_command("INCR", key)
            with with_raw_replies(link.pipeline(transaction=True)) as pipe:
                pipe.watch(key)
                seen = pipe.execute_command("GET", key)
                pipe.multi()
                pipe.execute_command("INCR", key)
                [now] = pipe.execute()
            if int(now) != int(seen or 0) + 1:
                raise redis.ResponseError(f"CHANGED from {seen} to {now} although it was watched")
            return now

        return run

    @staticmethod
    def by_cas(key):
        """INCR by `gets` and `cas`, or `add`, of memcached. It must not happen if the counter has changed since it was read."""

        def run(link):
            if not hasattr(link, "connection"):
                return link.execute_command("INCR", key)
            place, timeout_s = link.connection, link.connection.socket_timeout
            try:
                connection = socket.create_connection((place.host, place.port + MEMCACHED_OFFSET), timeout_s)
            except ConnectionRefusedError:
                # Nodes by hand may have no such port.
                return link.execute_command("INCR", key)
            with connection, connection.makefile("rwb") as lines:

                def line(request=None):
                    if request:
                        lines.write(request + b"\r\n")
                        lines.flush()
                    answer = lines.readline()
                    if answer.startswith(b"SERVER_ERROR "):
                        text = answer[13:].decode().strip()
                        raise redis.ResponseError("OOM" if text.startswith("out of memory") else text)
                    if not answer.endswith(b"\r\n"):
                        raise OSError("the connection has ended")
                    return answer.split()

                connection.settimeout(timeout_s)
                head = line(b"gets " + key.encode())
                if head[0] == b"END":
                    now, answer = 1, line(b"add %s 0 0 1\r\n1" % key.encode())
                elif head[0] != b"VALUE":
                    raise redis.ResponseError(f"ODD {head}")
                else:
                    now = int(line()[0]) + 1
                    if line() != [b"END"]:
                        raise redis.ResponseError("NOEND behind an item")
                    data = b"%d" % now
                    answer = line(b"cas %s 0 0 %d %s\r\n%s" % (key.encode(), len(data), head[4], data))
                if answer == [b"STORED"]:
                    return now
                if answer[0] in (b"EXISTS", b"NOT_FOUND", b"NOT_STORED"):
                    raise redis.WatchError("another client was faster")
                raise redis.ResponseError(f"ODD {answer}")

        return run

    def note_result(self, key, operation, argument, read, call, done, returned):
        """Writes an operation on a shared key into the history."""
        if done is None:
            self.write_down(key, operation, argument, call, "-", "-")
        elif isinstance(done, redis.ResponseError):
            self.write_down(key, operation, argument, call, returned, "!" + str(done).split()[0])
        elif isinstance(done[0], redis.ResponseError):
            self.write_down(key, operation, argument, call, returned, "error:" + "_".join(str(done[0]).split()))
        else:
            self.write_down(key, operation, argument, call, returned, read(done[0]))

    def command(self, key, operation, number):
        """Returns the argument for the history, the command, and a function that reads the answer."""
        if key[0] == "g":
            return self.group_command(key, operation, number)
        counter = key[0] == "c"
        argument = number * COUNTER_STEP if counter else number
        value = str(argument) if counter else value_of(number)
        found = (lambda reply: "nil" if reply is None else "".join(reply.split()) or "corrupt") if counter else number_in
        lasts = self.draw.choice([300, 700, 1_500, 4_000])
        match operation:
            case "get":
                return "-", ("GET", key), found
            case "set":
                return argument, ("SET", key, value), lambda _: "ok"
            case "swap":
                return argument, ("SET", key, value, "GET"), found
            case "setnx":
                return argument, ("SET", key, value, "NX"), lambda reply: "nil" if reply is None else "ok"
            case "setpx":
                return f"{argument}/{lasts}", ("SET", key, value, "PX", lasts), lambda _: "ok"
            case "pexpire":
                command = ("PEXPIRE", key, lasts) if lasts % 1000 else ("EXPIRE", key, lasts // 1000)
                return f"0/{lasts}", command, int
            case "del":
                return "-", ("DEL", key), int
            case "incr":
                return "-", ("INCR", key), int
        raise ValueError(operation)

    def group_command(self, key, operation, number):
        """Three keys that stand for one: they must never have different values."""
        names, value = members(key), value_of(number)
        match operation:
            case "get":
                return "-", ("GET", self.draw.choice(names)), number_in
            case "mget":
                same = lambda reply: number_in(reply[0]) if len(set(reply)) == 1 else "torn"
                return "-", ("MGET", *names), same
            case "set":
                return number, ("MSET", *[part for name in names for part in (name, value)]), lambda _: "ok"
            case "del":
                return "-", ("DEL", *names), lambda reply: {0: "0", 3: "1"}.get(int(reply), "torn")
        raise ValueError(operation)

    def attempt(self, run, is_read=False):
        """Runs an operation on this client's link. Returns `[reply]`, a refusal, or `None` for an unknown outcome; and the
        time of the return."""
        if self.draw.random() < ROAMS:
            self.hang_up()
        try:
            if self.link is None:
                self.link = self.connect(self.draw, self.draw.choice(TIMEOUTS_S))
        except (redis.RedisError, RedisClusterException) as error:
            return redis.ResponseError(f"UNREACHED {error}"), time.monotonic_ns()
        try:
            reply = run(self.link)
            return [reply], time.monotonic_ns()
        except redis.WatchError as error:
            if "occurred while watching" in str(error):
                # redis-py says so too when the connection ended, or timed out, behind EXEC: it may have run.
                self.hang_up()
                return None, None
            return redis.ResponseError("WATCHED"), time.monotonic_ns()
        except redis.ResponseError as error:
            done = self.outcome(error, is_read)
            return done, None if done is None else time.monotonic_ns()
        except redis.InvalidResponse as error:
            self.hang_up()
            return [redis.ResponseError(f"GARBAGE {error}")], time.monotonic_ns()
        except (redis.RedisError, RedisClusterException, OSError):
            self.hang_up()
            return None, None

    @staticmethod
    def outcome(error, is_read):
        """What an error says: a refusal, `None` for an unknown outcome, or `[error]` for one that is not allowed here. The
        last is recorded as a finding."""
        # redis-py puts words before an error that is in the reply of EXEC.
        word = CLASSES.get(type(error)) or str(error).split("caused error: ")[-1].split()[0]
        if word in REFUSALS:
            return redis.ResponseError(word)
        return None if word == "UNCERTAIN" and not is_read else [error]

    def hang_up(self):
        if self.link is not None:
            try:
                self.link.close()
            except (redis.RedisError, OSError):
                pass
            self.link = None

    def write_down(self, *parts):
        key, *rest = parts
        print(key, self.name, *rest, file=self.history)

    # Pipelines: written whole before the first reply is read.

    def pipeline(self, ledger_prefix, ledger_room):
        try:
            # A connection of its own: others of this client have shorter patience.
            link = self.connect(self.draw, ANSWERED_WITHIN_S)
            connection = link.connection
        except (AttributeError, redis.RedisError, RedisClusterException):
            # A cluster-aware client has no single connection.
            return
        steps, written = [], 0
        for _ in range(self.draw.choice((5, 30, 30, 200))):
            steps.append(self.step(ledger_prefix, ledger_room))
            written += sum(len(word) for word in steps[-1][0] if isinstance(word, str))
            if written > PIPELINE_BYTES_MAX:
                break
        late_s = self.draw.choice(LATE_S)
        call = time.monotonic_ns()
        broken = False
        try:
            connection.send_packed_command(connection.pack_commands([command for command, _, _ in steps]))
            time.sleep(late_s)
        except (redis.RedisError, OSError) as error:
            broken = True
            self.check_patience(error)
        for _, is_read, take in steps:
            done = None
            if not broken:
                try:
                    done = [connection.read_response()]
                except redis.ResponseError as error:
                    done = self.outcome(error, is_read)
                except redis.InvalidResponse as error:
                    broken, done = True, [redis.ResponseError(f"GARBAGE {error}")]
                except (redis.RedisError, OSError) as error:
                    broken = True
                    self.check_patience(error)
            take(call, done)
        try:
            link.close()
        except (redis.RedisError, OSError):
            pass

    def check_patience(self, error):
        """No pipeline may wait for ever: an unanswered one is a finding."""
        if isinstance(error, (redis.TimeoutError, TimeoutError)):
            print("pipeline", self.name, "unanswered", file=self.ledger)

    def step(self, ledger_prefix, ledger_room):
        """A command of a pipeline, whether it only reads, and what takes its result."""
        dice = self.draw.random()
        if dice < 0.05:
            key = self.draw.choice(self.keys)
            operation = self.draw.choice(MIX[key[0]])
            argument, command, read = self.command(key, operation, self.new_number(large=0.0))
            take = lambda call, done: self.note_result(key, operation, argument, read, call, done, done and time.monotonic_ns())
            return command, operation in ("get", "mget"), take
        if dice < 0.15 and len(self.noted) < ledger_room:
            number = self.new_number(large=0.05)
            key = f"{ledger_prefix}:{number}"
            return ("SET", key, value_of(number)), False, lambda _, done: self.take_note(key, number, done)
        if dice < 0.25 and self.noted:
            key, number = self.draw.choice(self.noted)
            return ("GET", key), True, lambda _, done: self.take_look_up(key, number, done)
        while len(self.own) < 4:
            self.own[f"{ledger_prefix}:own:{self.new_number()}"] = "nil"
        keys = self.draw.sample(sorted(self.own), 3)
        if dice < 0.35:
            return ("MGET", *keys), True, lambda _, done: self.take_own(keys, None, done)
        if dice < 0.65:
            return ("GET", keys[0]), True, lambda _, done: self.take_own(keys[:1], None, done)
        is_large_one = LARGE["part"] > 0 and self.draw.random() < PIPELINE_LARGE
        number = self.new_number(large=0.0)
        while is_large_one and not is_large(number):
            number = self.new_number()
        more = ("GET",) if self.draw.random() < 0.3 else ()
        take = lambda _, done: self.take_own(keys[:1], str(number), done, returns_values=bool(more))
        return ("SET", keys[0], value_of(number), *more), False, take

    def take_own(self, keys, number, done, returns_values=True):
        """Compares a reply with what this client's own commands have left, in their order. `number`: of the value that the
        command has set."""
        verdict = "own"
        if done is None and number:
            # It may have been done, or may be done later: nothing can be said of the key any more.
            self.own.pop(keys[0], None)
        elif isinstance(done, list) and all(key in self.own for key in keys):
            replies = done[0] if isinstance(done[0], list) else done
            found = [number_in(reply) for reply in replies] if returns_values else replies
            if found != ([self.own[key] for key in keys] if returns_values else ["OK"]):
                verdict = "lost"
            if number:
                self.own[keys[0]] = number
        print(keys[0], number, verdict, file=self.ledger)

    # The ledger: keys that are written once and must exist from then on.

    def note(self, prefix):
        # The ledger grows until the act ends.
        number = self.new_number(large=0.05)
        key = f"{prefix}:{number}"
        done, _ = self.attempt(lambda link: link.execute_command("SET", key, value_of(number)), False)
        self.take_note(key, number, done)

    def take_note(self, key, number, done):
        if done is None:
            print(key, number, "unknown", file=self.ledger)
        elif isinstance(done, list) and done[0] == "OK":
            self.noted.append((key, number))
            print(key, number, "ok", file=self.ledger)
        elif isinstance(done, list):
            # An error that is not allowed here.
            print(key, number, "lost", file=self.ledger)
        else:
            print(key, number, "refused", file=self.ledger)

    def look_up(self, key, number):
        done, _ = self.attempt(lambda link: link.execute_command("GET", key), True)
        self.take_look_up(key, number, done)

    def take_look_up(self, key, number, done):
        if not isinstance(done, list):
            print(key, number, "unread", file=self.ledger)
        elif number_in(done[0]) != str(number):
            print(key, number, "lost", file=self.ledger)
        else:
            print(key, number, "read", file=self.ledger)


def any_node(addresses):
    """Connects to a random node at its port for any key, with a stock client that never retries."""

    def connect(draw, timeout_s):
        host, port = draw.choice(addresses)
        link = redis.Redis(
            host=host,
            port=port,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
            # Garbage is recorded as a finding, so it must not raise an error in the client.
            encoding_errors="replace",
            single_connection_client=True,
        )
        return with_raw_replies(link)

    return connect


def owners(addresses):
    """Connects like a cluster-aware client: through the cluster ports, to the owner of the key, as given by `MOVED`. An
    operation that may have been done is not retried."""

    def connect(draw, timeout_s):
        host, port = draw.choice(addresses)
        return OfCluster(
            host=host,
            port=port + 1_000,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
            encoding_errors="replace",
        )

    return connect


class OfCluster(redis.RedisCluster):
    """The stock cluster client, with raw replies."""

    def get_redis_connection(self, node):
        return with_raw_replies(super().get_redis_connection(node))


def with_raw_replies(link):
    for command in COMMANDS:
        link.response_callbacks.pop(command, None)
    return link


def client_process(name, connect, seed, keys, standing, directory, ending, rate, ledger_prefix, ledger_room, addresses):
    """The main function of a client's process. The parent decides when it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with (
        open(directory / f"history-{name}", "w", encoding="utf-8") as history,
        open(directory / f"ledger-{name}", "w", encoding="utf-8") as ledger,
    ):
        Client(name, connect, seed, keys, standing, history, ledger, addresses).run(ending, rate, ledger_prefix, ledger_room)
