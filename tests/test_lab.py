"""The papers' experiments from the command line."""

import csv
import os
import subprocess
import sys

from conftest import BINARY

# The python3 that runs this has what plots need.
ENVIRONMENT = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}


def lab(*arguments):
    command = [BINARY, "lab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRONMENT, check=False)


def test_what_is_listed_can_be_run_and_is_drawn(tmp_path):
    listed = lab("list")
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    assert {"mttdl", "redundancy"} <= set(names)
    for name in ("mttdl", "redundancy"):
        done = lab("run", name, "--out", str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert "reproduced" in done.stdout and "NOT" not in done.stdout
        head, *rows = csv.reader((tmp_path / f"{name}.csv").read_text().splitlines())
        assert rows and all(len(row) == len(head) for row in rows)
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


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
