"""Systems on hosts of this machine, whose network is a class with `command(host)` and `address(host)`. One system at a time."""

import pathlib
import subprocess
import tempfile

import systems

PORT = 6379


class Stage:
    def __init__(self, network):
        self.network, self.children = network, {}
        self.directory = tempfile.TemporaryDirectory(prefix="bench-")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        self.directory.cleanup()

    def start(self, name, host, *command):
        with open(pathlib.Path(self.directory.name, f"log-{name}"), "ab") as log:
            self.children[name] = subprocess.Popen(
                [*self.network.command(host), *command], stdout=log, stderr=log, cwd=self.directory.name
            )

    def end(self):
        for child in self.children.values():
            child.kill()
        for child in self.children.values():
            child.wait()
        self.children.clear()

    def stop(self, servers):
        """Ends these servers as `kill -9` does."""
        for server in servers:
            child = self.children.pop(f"server-{server}")
            child.kill()
            child.wait()

    def address(self, host, port=PORT):
        return f"{self.network.address(host)}:{port}"

    def ask(self, host, *words, port=PORT):
        command = [*self.network.command(host), "redis-cli", "-h", self.network.address(host), "-p", str(port), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def paritas(self, servers, scheme, memory="512mb", chunk="16kb", **settings):
        """A cluster; `settings` are those of its nodes. Returns the nodes' addresses."""
        of_nodes = "".join(f'{name} = "{value}"\n' for name, value in settings.items())
        path = pathlib.Path(self.directory.name)
        for old in path.glob("*.toml"):
            old.unlink()
        path.joinpath("store").unlink(missing_ok=True)
        path.joinpath("secret").write_text("a secret of this bench, thirty-two bytes or more\n")
        path.joinpath("secret").chmod(0o600)
        coordinator, common = self.address(0, 6300), f'secret_file = "{path}/secret"\nopen = true\n'
        file = path / "coordinator.toml"
        file.write_text(f'{common}listen = "{coordinator}"\nstore = "{path}/store"\nscheme = "{scheme}"\nnodes = {servers}\n'
                        f'chunk = "{chunk}"\nmemory = "{memory}"\n')
        subprocess.run([systems.PARITAS, "coordinator", "--config", str(file), "--create"], check=True, capture_output=True)
        self.start("coordinator", 0, systems.PARITAS, "coordinator", "--config", str(file))
        for host in range(servers):
            file = path / f"node-{host}.toml"
            file.write_text(f'{common}id = {host}\nbind = "{self.network.address(host)}"\nport = {PORT}\nmemory = "{memory}"\n'
                            f'coordinator = ["{coordinator}"]\n{of_nodes}')
            self.start(f"server-{host}", host, systems.PARITAS, "node", "--config", str(file))
        systems.until(lambda: self.ask(0, "SET", "ready", "1").startswith("OK"), "a cluster that serves")
        return [self.address(host) for host in range(servers)]

    def memcached(self, servers, megabytes):
        """Stock memcached on each host. Returns their addresses."""
        for host in range(servers):
            words = ["-u", "root", "-l", self.network.address(host), "-p", str(PORT), "-U", "0", "-m", str(megabytes), "-I", "4m"]
            self.start(f"server-{host}", host, "memcached", *words)
        for host in range(servers):
            probe = [*self.network.command(host), "bash", "-c", f"exec 3<>/dev/tcp/{self.network.address(host)}/{PORT}"]
            systems.until(lambda probe=probe: subprocess.run(probe, capture_output=True, check=False).returncode == 0, "memcached")
        return [self.address(host) for host in range(servers)]

    def valkey(self, hosts, primaries):
        """Primaries on the first of the hosts, and two replicas of each on those behind it. Returns their addresses."""
        step = 3 if primaries == 2 else 1
        for primary in range(primaries):
            for copy in range(3):
                host, port = (primary * step + copy) % hosts, PORT + primary
                words = ["--port", str(port), "--bind", self.network.address(host), "--save", "", "--appendonly", "no"]
                words += ["--protected-mode", "no", "--repl-diskless-sync-delay", "0"]
                words += ["--replicaof", self.network.address(primary * step), str(port)] if copy else []
                self.start(f"server-{host}-{port}", host, systems.valkey_binary(), *words)
        for primary in range(primaries):
            asked = (primary * step, "INFO", "replication")
            systems.until(lambda asked=asked, port=PORT + primary: "connected_slaves:2" in self.ask(*asked, port=port), "two replicas")
        return [self.address(primary * step, PORT + primary) for primary in range(primaries)]
