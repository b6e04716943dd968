"""A real HDFS for tests: a NameNode and DataNodes, each a JVM, from the jars in `target/hdfs/VERSION/lib`
(scripts/build-java). The environment's HADOOP is the version, by default the one of `java/hdfs/pom.xml`."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import urllib.request

from conftest import TIMEOUT_S, is_free, until

ROOT = pathlib.Path(__file__).resolve().parent.parent
HADOOP = os.environ.get("HADOOP") or re.search("<hadoop.version>(.*)</", (ROOT / "java/hdfs/pom.xml").read_text("utf-8"))[1]
LIBRARIES = ROOT / "target/hdfs" / HADOOP / "lib"
CLIENT_JARS = [ROOT / "java/client/target/paritas-hadoop-0.1.0.jar", ROOT / "java/lab/target/paritas-lab-0.1.0.jar"]
JAVA = [
    "java",
    "-XX:+UseSerialGC",
    "-XX:CICompilerCount=2",
    "-Xss512k",
    "-Djava.net.preferIPv4Stack=true",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.nio", "sun.nio.ch")),
]
# They live for minutes: the second compiler costs them more than it gives.
SERVER = [*JAVA, "-XX:TieredStopAtLevel=1"]
LOGGING = """log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
"""
SITE = {
    "dfs.replication": 1,
    "dfs.permissions.enabled": "false",
    "dfs.namenode.fs-limits.min-block-size": 1024,
    "dfs.namenode.edits.noeditlogchannelflush": "true",  # tests need no durable edit log
    "dfs.namenode.safemode.extension": 0,
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",  # no reverse DNS here
    "dfs.namenode.redundancy.interval.seconds": "1s",
    "dfs.namenode.redundancy.considerLoad": "false",  # a node that has just taken a block may get the next one too
    "dfs.namenode.handler.count": 4,
    "dfs.datanode.handler.count": 4,
    "dfs.blockreport.initialDelay": 0,
    "dfs.heartbeat.interval": 1,
}


def missing():
    """What a test of HDFS lacks here, as a sentence; None if nothing."""
    if shutil.which("java") is None:
        return "no Java on this machine: install a JDK 11 or newer, for example default-jdk-headless"
    if not LIBRARIES.is_dir() or not all(jar.exists() for jar in CLIENT_JARS):
        return f"no jars of HDFS {HADOOP} and of the client: run `HADOOP={HADOOP} make java-test`, which needs Maven"
    return None


def free_ports(count):
    """All are below those that the system gives to clients: a connection of an earlier process must not take one before
    its server starts. And above those of `conftest.free_base`."""
    ports = set()
    while len(ports) < count:
        port = random.SystemRandom().randrange(13_000, 20_000)
        if is_free(port):
            ports.add(port)
    return list(ports)


def write_site(path, values):
    properties = "".join(f"<property><name>{k}</name><value>{v}</value></property>\n" for k, v in values.items())
    path.write_text(f"<configuration>\n{properties}</configuration>\n", encoding="utf-8")


class Hdfs:
    """A NameNode and DataNodes. `places` gives each its command prefix and address (network namespaces); without it all
    are on the loopback address, with ports of their own."""

    def __init__(self, directory, datanodes=5, places=None):
        self.directory = pathlib.Path(directory)
        self.places = places or [([], "127.0.0.1")] * (datanodes + 1)
        self.count = datanodes
        self.processes = {}
        self.nodes = []
        # The jars lack the pages of the web interface, without which no server starts.
        for name in ("conf/webapps/hdfs", "conf/webapps/datanode", "conf/webapps/static", "logs", "data"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self.ports = iter(free_ports(2 + 3 * datanodes))
        prefix, self.host = self.places[0]
        self.rpc, self.http = next(self.ports), next(self.ports)
        self.uri = f"hdfs://{self.host}:{self.rpc}"
        (self.directory / "conf/log4j.properties").write_text(LOGGING, encoding="utf-8")
        # Counters that are asked for are at most a second old.
        (self.directory / "conf/hadoop-metrics2.properties").write_text("*.period=1\n", encoding="utf-8")
        write_site(self.directory / "conf/core-site.xml",
                   {"fs.defaultFS": self.uri, "hadoop.tmp.dir": self.directory / "data/tmp"})
        site = {**SITE, "dfs.namenode.name.dir": f"file://{self.directory}/data/nn",
                "dfs.namenode.http-address": f"{self.host}:{self.http}",
                "dfs.namenode.secondary.http-address": f"{self.host}:0"}
        write_site(self.directory / "conf/hdfs-site.xml", site)
        self.class_path = ":".join([f"{self.directory}/conf", *map(str, CLIENT_JARS), f"{LIBRARIES}/*"])

    def start(self):
        server = "org.apache.hadoop.hdfs.server"
        prefix, _ = self.places[0]
        done = subprocess.run(
            [*prefix, *SERVER, "-cp", self.class_path, f"{server}.namenode.NameNode", "-format", "-force",
             "-nonInteractive"],
            capture_output=True, text=True, check=False, timeout=3 * TIMEOUT_S)
        assert done.returncode == 0, done.stderr
        self.spawn("namenode", prefix, "256m", f"{server}.namenode.NameNode")
        for i in range(self.count):
            self.start_datanode(i)
        until(lambda: self.has_ended() or self.live() == self.count, f"{self.count} DataNodes", 3 * TIMEOUT_S)
        ended = self.has_ended()
        assert not ended, f"{ended} has ended:\n{self.log(ended)[-3000:]}"
        return self

    def has_ended(self):
        """The name of a server that does not run any more; None if all do."""
        return next((name for name, process in self.processes.items() if process.poll() is not None), None)

    def log(self, name):
        return (self.directory / f"logs/{name}.log").read_text(encoding="utf-8")

    def start_datanode(self, i):
        prefix, host = self.places[i + 1]
        if len(self.nodes) <= i:
            self.nodes.append(tuple(next(self.ports) for _ in range(3)))
        data, http, ipc = self.nodes[i]
        settings = {"data.dir": f"file://{self.directory}/data/dn{i}", "hostname": host, "address": f"{host}:{data}",
                    "http.address": f"{host}:{http}", "ipc.address": f"{host}:{ipc}"}
        options = [f"-Ddfs.datanode.{name}={value}" for name, value in settings.items()]
        self.spawn(f"datanode{i}", prefix, "96m", "org.apache.hadoop.hdfs.server.datanode.DataNode", *options)

    def spawn(self, name, prefix, heap, main, *arguments):
        with open(self.directory / f"logs/{name}.log", "w", encoding="utf-8") as log:
            self.processes[name] = subprocess.Popen(
                [*prefix, *SERVER, f"-Xmx{heap}", f"-Dhadoop.log.dir={self.directory}/logs", "-cp", self.class_path, main,
                 *arguments], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def live(self):
        beans = self.beans(0, self.http, "Hadoop:service=NameNode,name=FSNamesystemState")
        return beans[0]["NumLiveDataNodes"] if beans else 0

    def beans(self, place, port, query):
        """What a server tells by JMX; an empty list if it does not answer."""
        prefix, host = self.places[place]
        url = f"http://{host}:{port}/jmx?qry={query}"
        try:
            if prefix:
                text = subprocess.run([*prefix, "curl", "-s", url], capture_output=True, check=False).stdout
            else:
                text = urllib.request.urlopen(url, timeout=5).read()
            return json.loads(text)["beans"]
        except (OSError, ValueError, LookupError):
            return []

    def is_serving(self, i):
        """Whether the DataNode is registered, so that it has its blocks."""
        beans = self.beans(i + 1, self.nodes[i][1], "Hadoop:service=DataNode,name=DataNodeInfo")
        return bool(beans) and '"RUNNING"' in beans[0].get("BPServiceActorInfo", "")

    def bytes_read(self):
        """What all DataNodes have sent of their blocks, as they count it."""
        total = 0
        for i in range(self.count):
            beans = until(lambda i=i: self.beans(i + 1, self.nodes[i][1], "Hadoop:service=DataNode,name=DataNodeActivity*"),
                          f"DataNode {i} tells its counters")
            total += beans[0]["BytesRead"]
        return total

    def kill(self, i):
        process = self.processes[f"datanode{i}"]
        process.kill()
        process.wait()

    def node(self, i):
        """The DataNode's transfer address, as HDFS names it."""
        return f"{self.places[i + 1][1]}:{self.nodes[i][0]}"

    def signal(self, i, number):
        self.processes[f"datanode{i}"].send_signal(number)

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
        for process in self.processes.values():
            process.wait()


class Reader:
    """A JVM that reads as it is told: see java/lab, Reads."""

    MAIN = "io.paritas.lab.Reads"

    def __init__(self, hdfs, modes, shared=(), prefix=(), heap="768m"):
        self.log = hdfs.directory / f"logs/{type(self).__name__.lower()}-{os.urandom(4).hex()}.log"
        arguments = ["--fs", hdfs.uri]
        for setting in shared:
            arguments += ["--conf", setting]
        arguments += [f"{name}:{';'.join(settings)}" for name, settings in modes.items()]
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*prefix, *JAVA, f"-Xmx{heap}", "-cp", hdfs.class_path, self.MAIN, *arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "HADOOP_USER_NAME": "root"})
        self.unanswered = 0
        assert self.process.stdout.readline().strip() == "ready", self.log.read_text(encoding="utf-8")

    def send(self, *words):
        self.unanswered += 1
        print(*words, file=self.process.stdin, flush=True)

    def answer(self):
        line = self.process.stdout.readline().strip()
        self.unanswered -= 1
        assert line, f"the reader has ended:\n{self.log.read_text(encoding='utf-8')[-3000:]}"
        return line

    def ask(self, *words):
        self.send(*words)
        return self.answer()

    def ok(self, *words):
        """The rest of the answer; an error otherwise."""
        answer = self.ask(*words)
        assert answer.startswith("ok"), f"{words}: {answer}"
        return answer[2:].strip()

    def seconds(self, *words):
        return int(self.ok(*words).split()[0]) / 1e9

    def counters(self, mode):
        return {name: int(value) for name, value in (pair.split("=") for pair in self.ok("counters", mode).split())}

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
