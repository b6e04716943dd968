"""The papers' experiments from the command line."""

import contextlib
import csv
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from conftest import BINARY

# The lab draws its ports itself: one experiment at a time.
pytestmark = pytest.mark.xdist_group("lab")

# The python3 that runs this test has the packages that plots need.
ENVIRONMENT = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}


def lab(*arguments):
    command = [BINARY, "lab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=ENVIRONMENT, check=False)


# Of an experiment that finds the machine too busy to measure anything.
ATTEMPTS = 5
VERDICTS = {"reproduced", "beaten", "trend only", "not reproduced", "met", "not met", "our explanation"}
# Their claims are of times, which a quick run does not compare.
TIMES_ALONE = {"memec-systems", "memec-sizes", "memec-shards", "memec-memory", "memec-degraded", "memec-moves"}
EXPERIMENTS = [
    "mttdl",
    "redundancy",
    "update-schemes",
    "updated-stripes",
    "basic",
    "update-latency",
    "paritas-updates",
    "memory",
    "wide",
    "paritas-wide",
    "disk-accesses",
    "log-sizes",
    "two-losses",
    "node-repair",
    "tradeoff",
    "memec-lists",
    "memec-memory",
    "memec-systems",
    "memec-coding",
    "memec-sizes",
    "memec-shards",
    "memec-degraded",
    "memec-moves",
    "elasticmem-io",
    "elasticmem-access",
    "elasticmem-transitions",
    "elasticmem-concurrent",
    "elasticmem-nodes",
    "elasticmem-cold",
    "pocache-probability",
    "pocache-hit-ratio",
    "pocache-ahead",
    "pocache-strategies",
]


def test_what_is_listed_is_tested():
    listed = lab("list")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == EXPERIMENTS


# Most experiments start memcached processes.
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_experiment_works_and_is_drawn(name, tmp_path):
    command = [BINARY, "lab", "run", name, "--quick", "--out", str(tmp_path)]
    for _ in range(ATTEMPTS):
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        with running:
            try:
                said, complained = running.communicate(timeout=240)
            finally:
                running.kill()
        if "this machine is too busy" not in complained:
            break
    assert running.returncode == 0, said + complained
    for found in tmp_path.glob("*.csv"):
        head, *rows = csv.reader(found.read_text().splitlines())
        assert rows and all(len(row) == len(head) for row in rows), found
    sums = (tmp_path / "SHA256SUMS").read_text().splitlines()
    assert sorted(sums) == sorted(f"{sha256(found.read_bytes()).hexdigest()}  {found.name}" for found in tmp_path.glob("*.csv"))
    verdicts = tmp_path / f"{name}-verdicts.csv"
    assert verdicts.exists() or name in TIMES_ALONE
    if verdicts.exists():
        with open(verdicts, encoding="utf-8") as file:
            told = {row["verdict"] for row in csv.DictReader(file)}
        assert told and told <= VERDICTS, told
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert not memcached_of(running.pid), "memcached processes are left over"


def test_a_table_of_the_scripts_has_its_sum_beside_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "scripts")
    from files_lab import report  # noqa: PLC0415

    for name, rows in (("one", [{"a": 1}]), ("two", [{"b": 2}]), ("one", [{"a": 3}, {"a": 4}])):
        report.write(tmp_path / f"{name}.csv", rows)
    sums = (tmp_path / "SHA256SUMS").read_text()
    assert sums == "".join(f"{sha256(text).hexdigest()}  {name}\n" for text, name in ((b"b\n2\n", "two.csv"), (b"a\n3\n4\n", "one.csv")))


def memcached_of(pid):
    """Processes with a socket in a directory of that lab process."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"paritas-lab-{pid}-".encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
    return found


def test_memcached_that_is_not_there_is_named(tmp_path):
    command = [BINARY, "lab", "run", "memory", "--quick"]
    environment = {**ENVIRONMENT, "PATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.returncode == 1 and "memcached" in done.stderr


def test_wrong_names_and_numbers_are_refused_and_named():
    unknown = lab("run", "nothing")
    assert unknown.returncode == 1 and "nothing" in unknown.stderr and "mttdl" in unknown.stderr
    for arguments in (("--scheme", "6x3"), ("--mttf", "0"), ("--bandwidth", "-1"), ("--node", "0")):
        refused = lab("mttdl", *(f"{arguments[0]}={arguments[1]}",))
        assert refused.returncode != 0 and arguments[0] in refused.stderr, (arguments, refused.stderr)


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    refused = lab("run", "mttdl", "--out", str(tmp_path / "file" / "below"))
    assert refused.returncode == 1 and "below" in refused.stderr


def test_a_cluster_of_ones_own_lasts_longer_with_more_parity():
    def years(scheme):
        done = lab("mttdl", "--scheme", scheme)
        assert done.returncode == 0, done.stderr
        return float(done.stdout.split()[0])

    assert years("4+1") < years("4+2") < years("4+3")
