package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

func verdict(t *testing.T, lines string) porcupine.CheckResult {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history")
	if err := os.WriteFile(path, []byte(strings.TrimSpace(lines)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := read(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) > 1 {
		t.Fatal("one key at a time")
	}
	return check(keys["k"])
}

func TestHistories(t *testing.T) {
	for _, c := range []struct {
		name, lines string
		want        porcupine.CheckResult
	}{
		{"a write is read", "k 0 set 5 0 10 ok\nk 1 get - 11 20 5", porcupine.Ok},
		{"a lost write", "k 0 set 5 0 10 ok\nk 1 get - 11 20 nil", porcupine.Illegal},
		{"an old value", "k 0 set 5 0 10 ok\nk 0 set 6 11 20 ok\nk 1 get - 21 30 5", porcupine.Illegal},
		{"a value that nobody wrote", "k 0 set 5 0 10 ok\nk 1 get - 11 20 corrupt", porcupine.Illegal},
		{"an error that no rule allows", "k 0 set 5 0 10 error:ERR_value", porcupine.Illegal},
		{"half a group", "k 0 set 5 0 10 ok\nk 1 mget - 11 20 torn", porcupine.Illegal},
		{"an unknown write that happened", "k 0 set 5 0 - -\nk 1 get - 11 20 5", porcupine.Ok},
		{"an unknown write that did not", "k 0 set 5 0 - -\nk 1 get - 11 20 nil", porcupine.Ok},
		{"an unknown write that happened late", "k 0 set 5 0 - -\nk 1 get - 11 20 nil\nk 1 get - 21 30 5", porcupine.Ok},
		{"an unknown DEL that happened", "k 0 set 5 0 10 ok\nk 0 del - 11 - -\nk 1 get - 21 30 nil", porcupine.Ok},
		{"an unknown write that only a DEL saw", "k 0 set 5 0 - -\nk 1 del - 11 20 1", porcupine.Ok},
		{"an unknown write that comes and goes", "k 0 set 5 0 - -\nk 1 get - 11 20 5\nk 1 get - 21 30 nil", porcupine.Illegal},
		{"an unknown write that comes back", "k 0 set 5 0 - -\nk 1 get - 11 20 5\nk 0 set 6 21 30 ok\nk 1 get - 31 40 6\n" +
			"k 1 get - 41 50 5", porcupine.Illegal},
		{"an unknown write after its first read", "k 0 set 5 0 - -\nk 1 get - 11 20 5\nk 0 set 6 21 30 ok\nk 1 get - 31 40 6",
			porcupine.Ok},
		{"an unknown SET of a counter", "k 0 set 7000000 0 - -\nk 1 incr - 11 20 7000001\nk 1 get - 21 30 7000001", porcupine.Ok},
		{"an unknown SET of a counter, twice", "k 0 set 7000000 0 - -\nk 1 incr - 11 20 7000001\nk 1 incr - 21 30 7000001",
			porcupine.Illegal},
		{"an unknown DEL, beside a write that nobody saw", "k 0 set 5 0 10 ok\nk 2 set 6 11 - -\nk 0 del - 11 - -\n" +
			"k 1 get - 21 30 nil", porcupine.Ok},
		{"an unknown write that a DEL saw, beside an unknown DEL", "k 0 set 5 0 - -\nk 2 del - 5 - -\nk 1 del - 11 20 1\n" +
			"k 1 get - 21 30 nil", porcupine.Ok},
		{"a refused write that happened", "k 0 set 5 0 10 !TRYAGAIN\nk 1 get - 11 20 5", porcupine.Illegal},
		{"increments at the same time", "k 0 incr - 0 10 2\nk 1 incr - 0 10 1\nk 1 get - 11 20 2", porcupine.Ok},
		{"the same increment twice", "k 0 incr - 0 10 1\nk 1 incr - 11 20 1", porcupine.Illegal},
		{"an unknown increment", "k 0 incr - 0 - -\nk 1 incr - 11 20 2", porcupine.Ok},
		{"an increment applied twice", "k 0 incr - 0 10 1\nk 1 get - 11 20 2", porcupine.Illegal},
		{"a swap chain", "k 0 swap 5 0 10 nil\nk 1 swap 6 0 10 5\nk 1 get - 11 20 6", porcupine.Ok},
		{"a swap that saw nothing", "k 0 swap 5 0 10 nil\nk 1 swap 6 11 20 nil", porcupine.Illegal},
		{"SET NX over a key", "k 0 set 5 0 10 ok\nk 1 setnx 6 11 20 ok", porcupine.Illegal},
		{"DEL of nothing", "k 0 set 5 0 10 ok\nk 1 del - 11 20 0", porcupine.Illegal},
		{"a key lives until its end", "k 0 setpx 5/1000 0 10 ok\nk 1 get - 500000000 500000010 5", porcupine.Ok},
		{"a key dies too early", "k 0 setpx 5/1000 0 10 ok\nk 1 get - 500000000 500000010 nil", porcupine.Illegal},
		{"a key dies", "k 0 setpx 5/1000 0 10 ok\nk 1 get - 1900000000 1900000010 nil", porcupine.Ok},
		{"a key does not die", "k 0 setpx 5/1000 0 10 ok\nk 1 get - 1900000000 1900000010 5", porcupine.Illegal},
		{"a dead key is alive again", "k 0 setpx 5/1000 0 10 ok\nk 1 get - 1000000000 1000000010 nil\n" +
			"k 1 get - 1000000020 1000000030 5", porcupine.Illegal},
		{"an end is set", "k 0 set 5 0 10 ok\nk 0 pexpire 0/1000 11 20 1\nk 1 get - 1900000000 1900000010 nil", porcupine.Ok},
		{"SET takes the end away", "k 0 setpx 5/1000 0 10 ok\nk 0 set 6 11 20 ok\nk 1 get - 1900000000 1900000010 6", porcupine.Ok},
	} {
		if got := verdict(t, c.lines); got != c.want {
			t.Errorf("%s: %s instead of %s", c.name, got, c.want)
		}
	}
}

func TestLostWritesAreNamed(t *testing.T) {
	history := []operation{
		{kind: "set", value: "5", call: 0, answer: 10, result: "ok"},
		{kind: "set", value: "6", call: 11, answer: 20, result: "ok"},
		{kind: "get", value: "-", call: 21, answer: 30, result: "5"},
	}
	if lost := lostWrites(history); len(lost) != 1 || lost[0] != "6" {
		t.Errorf("lost: %v", lost)
	}
}

func TestAMalformedHistoryIsRefused(t *testing.T) {
	for _, line := range []string{"k 0 set 5 0", "k 0 sat 5 0 1 ok", "k x set 5 0 1 ok", "k 0 set 5/x 0 1 ok"} {
		if _, _, err := parse(line); err == nil {
			t.Errorf("taken: %s", line)
		}
	}
}
