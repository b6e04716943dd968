"""Counters of DataNodes as the steward takes them, from servers that answer anything: whatever they say, clients are served.
The real ones are asked in test_hdfs_rates.py."""

import http.server
import json
import threading

import pytest

from conftest import until
from test_files import MIB, NODES, start, store  # pylint: disable=unused-import

CHUNK = b"x" * (1 << 16)
LIST_FAULTS = {
    "garbage": "its answer is no HTTP",
    "page": "does not list DataNodes",
    "endless": "has more than 16777216 bytes|has not answered within 5 s",
    "slow": "has not answered within 5 s",
    "missing": "it answers with status 404",
    "moved": "it answers with status 302",
    "login": "HTTP with SPNEGO is not supported",
}
COUNTER_FAULTS = {
    **LIST_FAULTS,
    "page": "does not have the counters of a DataNode",
    "endless": "has more than 262144 bytes|has not answered within 1 s",
    "slow": "has not answered within 1 s",
    "none": "has the counters of 0 DataNodes",
    "bare": "has no BlocksRead",
}


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass

    def do_GET(self):
        getattr(self, self.server.mode)()

    def send(self, body, status=200):
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        if status == 401:
            self.send_header("WWW-Authenticate", "Negotiate")
        self.end_headers()
        self.wfile.write(body)

    def good(self):
        self.server.asked.append(self.path)
        self.send(json.dumps({"beans": [self.server.bean()]}).encode())

    def garbage(self):
        self.wfile.write(b"\0\xff" * 500 + b"\r\n\r\n")

    def page(self):
        self.send(b"<html>")

    def none(self):
        self.send(b'{"beans":[]}')

    def young(self):
        """A NameNode that has just started."""
        self.send(b'{"beans":[{"LiveNodes":"{}"}]}')

    def bare(self):
        self.send(b'{"beans":[{"BytesRead":1,"TotalReadTime":1}]}')

    def missing(self):
        self.send(b"", 404)

    def moved(self):
        self.send(b"", 302)

    def login(self):
        self.send(b"", 401)

    def endless(self):
        self.send(b'{"beans":[{"name":"')
        self.stream(CHUNK, 0)

    def slow(self):
        """A byte now and then, so that no single wait is long."""
        self.send(b"{")
        with self.server.waiting:
            self.server.slow_count += 1
        self.stream(b" ", 0.1)
        with self.server.waiting:
            self.server.slow_count -= 1

    def stream(self, part, pause_s):
        try:
            while not self.server.ending.wait(pause_s):
                self.wfile.write(part)
                self.wfile.flush()
        except OSError:
            pass


class Server(http.server.ThreadingHTTPServer):
    """An HTTP server whose answers are set by `mode`."""

    def __init__(self, bean):
        super().__init__(("127.0.0.1", 0), Handler)
        self.bean, self.mode = bean, "good"
        self.asked, self.ending, self.waiting, self.slow_count = [], threading.Event(), threading.Lock(), 0
        self.address = f"127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """A steward that has read enough closes the connection."""

    def stop(self):
        self.ending.set()
        self.shutdown()
        self.server_close()


class DataNode(Server):
    def __init__(self, name):
        super().__init__(self.activity)
        # Requests, their bytes and milliseconds: one value, so that no answer has half of a change.
        self.name, self.counted = name, (0, 0, 0)

    def activity(self):
        requests, size, time_ms = self.counted
        return {"name": f"Hadoop:service=DataNode,name=DataNodeActivity-{self.name}", "tag.SessionId": None, "BytesRead": size,
                "BlocksRead": requests, "TotalReadTime": time_ms, "CopyBlockOpNumOps": 0, "CopyBlockOpAvgTime": 0.0}

    def sends(self, requests, size, ms):
        before = self.counted
        self.counted = (before[0] + requests, before[1] + requests * size, before[2] + requests * ms)


class Hdfs:
    def __init__(self):
        self.datanodes = [DataNode(name) for name in NODES]
        self.namenode = Server(self.info)

    def info(self):
        live = {f"host-of-{node.name}": {"infoAddr": node.address, "infoSecureAddr": "127.0.0.1:0", "xferaddr": node.name}
                for node in self.datanodes}
        return {"name": "Hadoop:service=NameNode,name=NameNodeInfo", "LiveNodes": json.dumps(live)}

    def stop(self):
        for server in [self.namenode, *self.datanodes]:
            server.stop()


@pytest.fixture
def hdfs():
    made = Hdfs()
    yield made
    made.stop()


@pytest.fixture
def steward(hdfs, store, start):
    return start(store.port, namenode_http=f'"http://{hdfs.namenode.address}"')


def polls(steward):
    return steward.status()["datanodes"] or {}


def fails_with(steward, field, texts):
    found = polls(steward).get(field) or ""
    return any(text in found for text in texts.split("|"))


def all_asked(steward, hdfs):
    """Waits until each DataNode has told its counters once more."""
    before = polls(steward).get("answers", 0)
    until(lambda: polls(steward).get("answers", 0) >= before + 2 * len(hdfs.datanodes), "the DataNodes are asked")


def test_a_slow_datanode_is_found_by_its_own_counters(hdfs, steward):
    all_asked(steward, hdfs)
    assert steward.status()["nodes_with_rate"] == 0
    # Requests that are too small to see a slow link.
    hdfs.datanodes[1].sends(50, MIB, 1000)
    all_asked(steward, hdfs)
    assert steward.status()["nodes_with_rate"] == 0
    for node in hdfs.datanodes:
        node.sends(8, 8 * MIB, 800 if node.name == NODES[2] else 100)
    until(lambda: steward.status()["stragglers"] == [NODES[2]], "the slow DataNode is named")
    status = steward.status()
    assert status["rate_sources"] == dict.fromkeys(NODES, "node") and status["samples"] == 0
    assert status["rates"][NODES[0]] == 80 * MIB and status["datanodes"]["nodes"] == len(NODES)
    # The paths are exact: a NameNode asked for the whole bean computes all of it.
    assert hdfs.namenode.asked[0] == "/jmx?get=Hadoop:service=NameNode,name=NameNodeInfo::LiveNodes"
    assert hdfs.datanodes[0].asked[0] == "/jmx?qry=Hadoop:service=DataNode,name=DataNodeActivity*"
    # It starts again: its counters go backwards, which is no rate, and then there are new ones.
    node = hdfs.datanodes[2]
    node.counted = (1, 8 * MIB, 1)
    all_asked(steward, hdfs)
    assert steward.status()["rates"][node.name] == 10 * MIB
    node.sends(56, 8 * MIB, 100)
    until(lambda: steward.status()["stragglers"] == [], "it is not slow any more")
    # What clients say counts more.
    for _ in range(8):
        assert steward.ask("REPORT", *(word for name in NODES for word in (name, 4 * MIB, 10**9 if name == NODES[0] else 10**8, 0))) == "OK"
    until(lambda: steward.status()["stragglers"] == [NODES[0]], "the clients' slow node is named")
    assert steward.status()["rate_sources"] == dict.fromkeys(NODES, "clients")


def test_a_namenode_that_answers_anything_is_one_warning(hdfs, steward):
    for mode, texts in LIST_FAULTS.items():
        hdfs.namenode.mode = mode
        until(lambda mode=mode, texts=texts: fails_with(steward, "list_error", texts), lambda mode=mode: f"{mode}: {polls(steward)}")
        before = polls(steward)["lists_failed"]
        until(lambda before=before: polls(steward)["lists_failed"] > before, f"{mode}: it is asked again")
    hdfs.namenode.mode = "good"
    until(lambda: polls(steward)["list_error"] is None, "it lists them again")
    log = steward.log.read_text(encoding="utf-8")
    assert log.count("the NameNode does not list its DataNodes") == len(LIST_FAULTS), log


def test_a_namenode_that_lists_no_datanode_leaves_the_last_list_in_use(hdfs, steward):
    all_asked(steward, hdfs)
    hdfs.namenode.mode = "young"
    until(lambda: fails_with(steward, "list_error", "it lists no live DataNode"), lambda: f"no list: {polls(steward)}")
    all_asked(steward, hdfs)
    assert polls(steward)["nodes"] == len(NODES)


def test_datanodes_that_answer_anything_are_counted(hdfs, steward):
    def told(words):
        return steward.log.read_text(encoding="utf-8").count(words)

    all_asked(steward, hdfs)
    warned = None
    for mode, texts in COUNTER_FAULTS.items():
        for node in hdfs.datanodes:
            node.mode = mode
        until(lambda texts=texts: fails_with(steward, "failure", texts), lambda mode=mode: f"{mode}: {polls(steward)}")
        # More than once only if the servers here stood still before.
        warned = warned or told("DataNodes do not tell")
    assert warned and told("DataNodes do not tell") == warned, "one warning for all of them"
    for node in hdfs.datanodes:
        node.mode = "good"
    all_asked(steward, hdfs)
    until(lambda: polls(steward)["failure"] is None, "they answer again")
    until(lambda: told("all DataNodes tell") == told("DataNodes do not tell"), lambda: steward.log.read_text(encoding="utf-8"))


def test_servers_that_hang_delay_no_client(hdfs, steward):
    servers = [hdfs.namenode, *hdfs.datanodes]
    for server in servers:
        server.mode = "slow"

    def hanging():
        return sum(server.slow_count for server in servers)

    def served_meanwhile():
        """Hundred commands while the same request hangs; its deadline is at least 1 s."""
        before = polls(steward)
        if not hanging():
            return False
        for file in range(1, 101):
            assert steward.ask("TELL", "deleted", file) == "OK"
        after = polls(steward)
        counts = ("lists_failed", "failures")
        return bool(hanging()) and all(before.get(name) == after.get(name) for name in counts)

    until(served_meanwhile, "clients are served while servers hang")
