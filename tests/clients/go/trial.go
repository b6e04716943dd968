// What the programs of this folder share: a line for each thing that was tried, and writing and reading while a node dies.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Longest wait for anything, and keys and pause of a client while a node dies.
const (
	timeout   = 10 * time.Second
	keyCount  = 40
	ridePause = 5 * time.Millisecond
)

var (
	mode                string
	base, nodes, victim int
	run                 = randomName()
	checks              int
	lines               sync.Mutex
	offsets             = map[string]int{"any-key": 0, "cluster": 1_000, "memcached": 2_000}
	ctx                 = context.Background()
)

func randomName() string {
	name := make([]byte, 4)
	rand.Read(name)
	return hex.EncodeToString(name)
}

func address(kind string, node int) string {
	return fmt.Sprintf("127.0.0.1:%d", base+offsets[kind]+node)
}

// The addresses of all nodes, from this one on.
func addresses(kind string, first int) []string {
	var all []string
	for n := range nodes {
		all = append(all, address(kind, (first+n)%nodes))
	}
	return all
}

// A key that no other check has.
func key(name string) string {
	return fmt.Sprintf("%s:%d:%s", run, checks, name)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func must1[T any](value T, err error) T {
	must(err)
	return value
}

func equal(found, wanted any) {
	if !reflect.DeepEqual(found, wanted) {
		panic(fmt.Errorf("%v instead of %v", found, wanted))
	}
}

func until(condition func() bool) {
	deadline := time.Now().Add(timeout)
	for !condition() {
		if time.Now().After(deadline) {
			panic(fmt.Errorf("not within %v", timeout))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func line(words ...string) {
	for n, word := range words {
		word = strings.Join(strings.Fields(word), " ")
		words[n] = word[:min(len(word), 400)]
	}
	lines.Lock()
	defer lines.Unlock()
	fmt.Println(strings.Join(words, "\t"))
}

// A trial of one client: `check` prints whether something works, `ride` what happens while a node dies.
type trial struct{ client, version string }

// The version is the one that this program was built with.
func newTrial(client, module string) trial {
	info, _ := debug.ReadBuildInfo()
	for _, one := range info.Deps {
		if one.Path == module {
			version := strings.TrimPrefix(one.Version, "v")
			// A commit instead of a version: its date is enough.
			if parts := strings.Split(version, "-"); len(parts) == 3 {
				version = parts[1][:8]
			}
			return trial{client, version}
		}
	}
	return trial{client, "?"}
}

func (t trial) check(kind, what string, work func()) {
	if mode != "work" {
		return
	}
	checks++
	done := make(chan error, 1)
	go func() {
		defer func() {
			if wrong := recover(); wrong != nil {
				done <- fmt.Errorf("%v", wrong)
			}
		}()
		work()
		done <- nil
	}()
	select {
	case err := <-done:
		if err == nil {
			line("check", t.client, t.version, kind, what, "ok", "")
		} else {
			line("check", t.client, t.version, kind, what, "failed", err.Error())
		}
	case <-time.After(2 * timeout):
		line("check", t.client, t.version, kind, what, "failed", "no end after "+(2*timeout).String())
	}
}

// How a client is connected, and what it does then.
type way struct {
	how string
	put func(name, value string) error
	get func(name string) (string, error)
}

func (t trial) ride(ways ...way) {
	if mode != "ride" {
		return
	}
	words := []string{"riders", t.client, t.version}
	for _, one := range ways {
		words = append(words, one.how)
	}
	line(words...)
	var ended atomic.Bool
	var all sync.WaitGroup
	for _, one := range ways {
		all.Add(1)
		go func() {
			defer all.Done()
			t.rideOne(one, &ended)
		}()
	}
	io.Copy(io.Discard, os.Stdin)
	ended.Store(true)
	all.Wait()
}

func (t trial) rideOne(w way, ended *atomic.Bool) {
	// What a key may hold, by its number. A key whose write failed is not used again: the write may still come.
	holds, names := map[int]string{}, map[int]string{}
	for count := 0; !ended.Load(); count++ {
		time.Sleep(ridePause)
		number := count % keyCount
		if names[number] == "" {
			names[number] = key(strings.ReplaceAll(fmt.Sprintf("%s-%s-%d", t.client, w.how, count), " ", "-"))
		}
		name := names[number]
		if value, known := holds[number]; known {
			var found string
			if t.one(w.how, func() (err error) { found, err = w.get(name); return }) && found != value {
				line("op", t.client, w.how, "0", "0", fmt.Sprintf("wrong: %s has %q instead of %q", name, found, value))
			}
		}
		value := "v" + strconv.Itoa(count)
		if t.one(w.how, func() error { return w.put(name, value) }) {
			holds[number] = value
		} else {
			delete(holds, number)
			delete(names, number)
		}
	}
}

// Prints what one operation did, and tells whether it worked.
func (t trial) one(how string, work func() error) bool {
	start := time.Now()
	err := work()
	said := "ok"
	if err != nil {
		said = err.Error()
	}
	line("op", t.client, how, strconv.FormatInt(start.UnixMilli(), 10), strconv.FormatInt(time.Now().UnixMilli(), 10), said)
	return err == nil
}
