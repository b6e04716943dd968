"""Passwords of `paritas files steward` and of its cache store: right, wrong, missing, changed."""

import json
import subprocess

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from conftest import BINARY, TIMEOUT_S, free_base, until
from test_files import Steward, answer_to, client, files_status, start, store  # pylint: disable=unused-import
from test_files_metrics import Figures

PASSWORD = "correct horse"


@pytest.fixture
def file(tmp_path):
    """Makes files with passwords."""
    made = []

    def write(text, path=None):
        path = path or tmp_path / f"password-{len(made)}"
        made.append(path)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        return path

    return write


@pytest.fixture
def guarded(store):
    """A Valkey that wants the password, and a client that has it."""
    client(store.port).config_set("requirepass", PASSWORD)
    return store, known(store.port)


def known(port, password=PASSWORD):
    return redis.Redis(port=port, protocol=2, socket_timeout=TIMEOUT_S, decode_responses=True, password=password,
                       retry=Retry(NoBackoff(), 0))


def protected(start, store, path, **settings):
    """A steward with a password, and a client that has it."""
    steward = start(store.port, leads=False, head=f'password_file = "{path}"', **settings)
    steward.client = known(steward.port)
    return steward


def test_a_steward_serves_only_those_who_know_its_password(store, start, file, monkeypatch):
    port = free_base(1)
    path = file(PASSWORD + "\n")
    # It answers PING with an error, so that is what its start is known by.
    monkeypatch.setattr(Steward, "listens", lambda self: refuses(self, "PING"))
    steward = start(store.port, leads=False, head=f'password_file = "{path}"\nmetrics_listen = "127.0.0.1:{port}"')
    for command in ("PING", "FILES.STATUS", "FILES.PREFETCH lake", "CLIENT SETINFO LIB-NAME x", "HELLO"):
        assert refuses(steward, *command.split())
    for wrong in ("wrong", PASSWORD[:-1], PASSWORD + "s"):
        with pytest.raises(redis.AuthenticationError, match="line of this steward's password_file"):
            known(steward.port, wrong).execute_command("FILES.STATUS")
    def denied():
        return Figures(port).read()["denied_total{}"]

    until(lambda: denied() >= 8, "they are counted")
    # An open of two blocks has more words than who is not in may send.
    for what, long in [(b"bulk", b"*2\r\n$4\r\nAUTH\r\n$100000\r\n"), (b"multibulk", b"*11\r\n")]:
        before = denied()
        assert b"unauthenticated " + what + b" length" in answer_to(steward.port, long)
        until(lambda before=before: denied() == before + 1, "a command refused by its length is counted")

    steward.client = known(steward.port)
    until(steward.leads, "it leads")
    assert steward.cache(client(store.port), 1) and steward.open(1)[0] == "cached"
    assert PASSWORD not in steward.log.read_text(encoding="utf-8")


def refuses(steward, *words):
    assert steward.process.poll() is None, steward.log.read_text(encoding="utf-8")
    try:
        client(steward.port).execute_command(*words)
    except redis.AuthenticationError as error:
        return "has a password_file: give its password (fs.paritas.steward.password" in str(error) or words == ("HELLO",)
    except redis.ConnectionError:
        return False
    raise AssertionError(f"{words} was served")


def test_the_status_takes_a_password_and_follows_the_leader_with_it(store, start, file, monkeypatch):
    monkeypatch.setattr(Steward, "listens", lambda self: refuses(self, "PING"))
    path = file(PASSWORD)
    first = protected(start, store, path)
    until(first.leads, "it leads")
    second = protected(start, store, path)
    until(lambda: second.role() == "spare", "it is the spare")
    shown = files_status(second, "--json", "--password-file", str(path))
    assert json.loads(shown.stdout)["mounts"]["lake"]["status"]["opens"] == 0, shown.stderr
    for more, what in [
        ((), "--password-file of paritas files status"),
        (("--password-file", str(file("wrong"))), "WRONGPASS"),
        (("--password-file", str(path) + "-none"), "No such file"),
    ]:
        shown = files_status(second, *more)
        assert shown.returncode == 1 and what in shown.stderr, shown.stderr


def test_the_status_gives_a_password_to_a_steward_without_one(store, start, file):
    shown = files_status(start(store.port), "--password-file", str(file(PASSWORD)))
    assert shown.returncode == 0 and "led by this steward" in shown.stdout, shown.stderr


def cache_error(steward):
    return json.loads(steward.client.execute_command("FILES.STATUS"))["mounts"]["lake"]["cache_error"] or ""


def test_a_cache_with_a_password_is_used(guarded, start, file):
    store, keys = guarded
    path = file(PASSWORD + "\n")
    steward = start(store.port, cache_password_file=json.dumps(str(path)))
    steward.cache(keys, 1)
    assert steward.open(1)[0] == "cached" and cache_error(steward) == ""


def test_a_wrong_or_missing_password_of_the_cache_names_the_setting_and_is_mended_without_a_restart(guarded, start, file):
    store, keys = guarded
    path = file("wrong\n")
    steward = start(store.port, leads=False, cache_password_file=json.dumps(str(path)))
    refused = f"refuses the password: mend cache_password_file of [mount.lake], {path}"
    until(lambda: refused in cache_error(steward), lambda: cache_error(steward))
    with pytest.raises(redis.ResponseError, match="nobody leads mount lake: the cache store cannot be used .*Read without"):
        steward.open(1)
    assert refused in files_status(steward).stdout
    path.unlink()
    until(lambda: "No such file" in cache_error(steward), lambda: cache_error(steward))
    file(PASSWORD, path)
    until(steward.leads, "it leads")
    assert steward.cache(keys, 1) and cache_error(steward) == ""

    other = start(store.port, leads=False)
    needed = "needs a password: set cache_password_file in [mount.lake] to a file with it"
    until(lambda: needed in cache_error(other), lambda: cache_error(other))


def test_a_cache_of_paritas_takes_any_password_and_the_log_says_so(cluster, start, file):
    steward = start(cluster.port, cache_password_file=json.dumps(str(file(PASSWORD))))
    assert steward.open(987_654)[0] in ("should-cache", "cached")
    log = steward.log.read_text(encoding="utf-8")
    assert "the cache store has no password and takes everybody" in log and PASSWORD not in log


WRONG_FILES = [("", "must have one line"), ("\n", "must have one line"), ("a\nb\n", "must have one line"),
               ("x" * 513, "a password has at most 512 bytes"), (None, "No such file")]


@pytest.mark.parametrize("setting", ["password_file", "cache_password_file"])
@pytest.mark.parametrize("text, what", WRONG_FILES)
def test_a_file_that_has_no_password_is_named(tmp_path, file, setting, text, what):
    path = tmp_path / "none" if text is None else file(text)
    own, mounts = (f'{setting} = "{path}"', "") if setting == "password_file" else ("", f'{setting} = "{path}"')
    config = tmp_path / "files.toml"
    config.write_text(f'listen = "127.0.0.1:{free_base(1)}"\n{own}\n[mount.lake]\ncache = "127.0.0.1:1"\nblocks = 4\n{mounts}\n',
                      encoding="utf-8")
    command = [BINARY, "files", "steward", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1 and what in done.stderr and setting in done.stderr and str(path) in done.stderr, done.stderr
