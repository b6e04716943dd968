"""JVMs that write files of a test's HDFS as they are told (java/lab, Writes), or make parity ahead of readers."""

import os
import subprocess

from conftest import until
from hdfs import JAVA, Reader


class Writer(Reader):
    """As a reader, with other commands."""

    MAIN = "io.paritas.lab.Writes"


class Worker:
    """A worker that makes parity ahead of readers. Its log has a line for each file."""

    def __init__(self, hdfs, settings, prefix=(), heap="768m"):
        self.log = hdfs.directory / f"logs/worker-{os.urandom(4).hex()}.log"
        options = [word for setting in settings for word in ("-D", setting)]
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*prefix, *JAVA, f"-Xmx{heap}", "-cp", hdfs.class_path, "io.paritas.hadoop.Prefetch", *options, hdfs.uri],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, "HADOOP_USER_NAME": "root"})
        until(lambda: self.process.poll() is not None or self.lines("ready"), "the worker is ready")
        assert self.process.poll() is None, self.log.read_text(encoding="utf-8")

    def lines(self, word):
        return [line for line in self.log.read_text(encoding="utf-8").splitlines() if word in line]

    def stop(self):
        self.process.kill()
        self.process.wait()
