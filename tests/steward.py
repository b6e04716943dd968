"""A steward of `paritas files`, for tests."""

import json
import subprocess

from conftest import BINARY, TIMEOUT_S, until

NAMESPACE = "lake"


class Steward:
    """One process over a cache store. `prefix` puts it into a network namespace. `mounts` are settings by name."""

    def __init__(self, directory, cache, port, host="127.0.0.1", prefix=(), blocks=100, mounts=None):
        self.directory, self.host, self.port, self.prefix = directory, host, port, list(prefix)
        self.address = f"{host}:{port}"
        self.config = directory / "files.toml"
        text = f'listen = "{self.address}"\nopen = true\n'
        for name, settings in (mounts or {NAMESPACE: {"blocks": blocks}}).items():
            settings = {"cache": cache, "block": "8mb", **settings}
            text += f"[mount.{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
        self.config.write_text(text, encoding="utf-8")
        self.process = None

    def start(self):
        with open(self.directory / "steward.log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*self.prefix, BINARY, "files", "steward", "--config", str(self.config)], stdout=log, stderr=subprocess.STDOUT)
        until(lambda: self.process.poll() is not None or self.status(), "the steward answers")
        assert self.process.poll() is None, self.log()
        return self

    def log(self):
        return (self.directory / "steward.log").read_text(encoding="utf-8")

    def status(self):
        """What it says, as JSON; None if it does not answer."""
        command = [*self.prefix, BINARY, "files", "status", "--steward", self.address, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        return done.stdout if done.returncode == 0 else None

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
