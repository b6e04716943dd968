"""A JVM that writes files of a test's HDFS as it is told: java/lab, Writes."""

import os
import subprocess

from hdfs import JAVA, Reader


class Writer(Reader):
    """As a reader, with other commands."""

    def __init__(self, hdfs, modes, shared=(), prefix=(), heap="768m"):  # pylint: disable=super-init-not-called
        self.log = hdfs.directory / f"logs/writer-{os.urandom(4).hex()}.log"
        arguments = ["--fs", hdfs.uri]
        for setting in shared:
            arguments += ["--conf", setting]
        arguments += [f"{name}:{';'.join(settings)}" for name, settings in modes.items()]
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*prefix, *JAVA, f"-Xmx{heap}", "-cp", hdfs.class_path, "io.paritas.lab.Writes", *arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env={**os.environ, "HADOOP_USER_NAME": "root"})
        assert self.process.stdout.readline().strip() == "ready", self.log.read_text(encoding="utf-8")
