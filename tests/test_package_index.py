"""The main use on real data: the Debian package index, loaded with redis-cli, survives two deaths, twice."""

import importlib.machinery
import importlib.util
import os
import subprocess
import time

from conftest import TIMEOUT_S
from test_kill import Writer, compare

SCRIPT = os.path.join(os.path.dirname(__file__), "..", "scripts", "load-package-index")


def package_index():
    loader = importlib.machinery.SourceFileLoader("load_package_index", SCRIPT)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module.package_index()


def test_the_package_index_survives_two_double_kills(start_cluster, rng):
    values = package_index()
    cluster = start_cluster()
    loaded = subprocess.run([SCRIPT, "--port", str(cluster.port)], capture_output=True, text=True, timeout=3 * TIMEOUT_S)
    assert loaded.returncode == 0 and "errors: 0" in loaded.stdout, loaded.stdout + loaded.stderr
    compare(cluster, 0, values)
    first = rng.sample(range(6), 2)
    second = rng.sample([node for node in range(6) if node not in first], 2)
    for victims in (first, second):
        asked = next(node for node in range(6) if node not in victims)
        writer = Writer(cluster, asked, f"writer{asked}", 200)
        writer.start()
        began = time.monotonic()
        dead = cluster.kill(*victims)
        compare(cluster, asked, values)
        answered = time.monotonic() - began
        cluster.until_replaced(dead)
        whole = time.monotonic() - began
        writer.stop()
        compare(cluster, asked, values)
        writer.check(asked)
        print(
            f"killed {victims}: {len(values)} packages read back after {answered:.2f} s, all whole after {whole:.2f} s;",
            f"{writer.acknowledged} acknowledged, {writer.refused} refused, {writer.uncertain} uncertain",
        )
