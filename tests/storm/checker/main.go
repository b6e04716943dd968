// checker reads the history of a storm (`workload.py` describes its lines), has Porcupine check each key, and names the
// keys whose history no order of the operations explains. Its last line is `N keys, U non-linearizable, L lost`.
package main

import (
	"bufio"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// counterStep is the distance between values that counters are set to (`workload.py`).
const counterStep = 1_000_000

// timeout is the limit for one search. A key that no search judges is not checked, which counts as a failure.
const timeout = 8 * time.Minute

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: checker HISTORY")
		os.Exit(2)
	}
	keys, err := read(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "checker:", err)
		os.Exit(2)
	}
	verdicts := checkAll(keys)
	bad, lost := 0, 0
	for _, name := range sorted(keys) {
		if verdict := verdicts[name]; verdict != porcupine.Ok {
			bad++
			overtaken := lostWrites(keys[name])
			lost += len(overtaken)
			what := "not linearizable"
			if verdict == porcupine.Unknown {
				what = "not checked: the search took too long"
			}
			fmt.Printf("%s: %s; %d operations, acknowledged writes that a later read missed: %v\n", name, what,
				len(keys[name]), overtaken)
		}
	}
	fmt.Printf("%d keys, %d non-linearizable, %d lost\n", len(keys), bad, lost)
	if bad > 0 {
		os.Exit(1)
	}
}

// checkAll checks each key separately, two at a time.
func checkAll(keys map[string][]operation) map[string]porcupine.CheckResult {
	verdicts := map[string]porcupine.CheckResult{}
	var lock sync.Mutex
	var group sync.WaitGroup
	turns := make(chan struct{}, 2)
	for name, history := range keys {
		group.Add(1)
		go func(name string, history []operation) {
			defer group.Done()
			turns <- struct{}{}
			verdict := check(history)
			<-turns
			lock.Lock()
			defer lock.Unlock()
			verdicts[name] = verdict
		}(name, history)
	}
	group.Wait()
	return verdicts
}

// check first leaves out operations of unknown outcome. They may always come after all others, so an order of the rest
// is an order of all; and each operation left out halves the search. A search that fails puts some of them back.
func check(history []operation) porcupine.CheckResult {
	first := firstShown(history)
	isShown := func(op operation) bool { _, ok := first.of(op); return ok }
	if search(without(history, func(op operation) bool { return op.kind != "incr" && !isShown(op) }), timeout/4) == porcupine.Ok {
		return porcupine.Ok
	}
	if search(without(history, func(op operation) bool { return op.writes() && !isShown(op) }), timeout) == porcupine.Ok {
		return porcupine.Ok
	}
	return search(history, timeout)
}

// without leaves out the operations of unknown outcome for which `hidden` is true.
func without(history []operation, hidden func(operation) bool) []operation {
	kept := []operation{}
	for _, op := range history {
		if op.answer != unknown || !hidden(op) {
			kept = append(kept, op)
		}
	}
	numberTwins(kept)
	return kept
}

// shown is the time at which each value of a key was first known to a client, by the answer to an operation that reads.
type shown struct {
	at      map[string]int64
	counter bool
}

func firstShown(history []operation) shown {
	first := shown{at: map[string]int64{}}
	for _, op := range history {
		first.counter = first.counter || op.kind == "incr"
	}
	for _, op := range history {
		reads := op.kind == "get" || op.kind == "mget" || op.kind == "swap" || op.kind == "incr"
		if !reads || op.answer == unknown {
			continue
		}
		value := first.written(op.result)
		if at, ok := first.at[value]; !ok || op.answer < at {
			first.at[value] = op.answer
		}
	}
	return first
}

// written is the write that a result comes from. Counters are set to multiples of `counterStep`, and counted up from
// there.
func (first shown) written(result string) string {
	number, err := strconv.ParseInt(result, 10, 64)
	if !first.counter || err != nil {
		return result
	}
	return strconv.FormatInt(number-number%counterStep, 10)
}

// of returns when the value that an operation writes was first shown. Values are unique.
func (first shown) of(op operation) (int64, bool) {
	at, ok := first.at[op.value]
	return at, ok && op.writes() && at > op.call
}

// search looks for an order. A write of unknown outcome whose value an answer shows was done before that answer came:
// the search need not try later times.
func search(history []operation, timeout time.Duration) porcupine.CheckResult {
	first := firstShown(history)
	operations := make([]porcupine.Operation, 0, len(history))
	for _, op := range history {
		until := op.answer
		if at, ok := first.of(op); ok && op.answer == unknown {
			until = at
		}
		operations = append(operations, porcupine.Operation{ClientId: op.client, Input: op, Call: op.call, Return: until})
	}
	return porcupine.CheckOperationsTimeout(model, operations, timeout)
}

// lostWrites names the acknowledged writes of unique values that came after another write and had ended before a read
// that still saw the earlier write. It is used only for keys that are not linearizable.
func lostWrites(history []operation) []string {
	writes := map[string]operation{}
	for _, op := range history {
		if op.value != "-" && op.answer != unknown && (op.result == "ok" || op.kind == "swap") {
			writes[op.value] = op
		}
	}
	lost := map[string]bool{}
	for _, read := range history {
		if read.kind != "get" && read.kind != "mget" && read.kind != "swap" {
			continue
		}
		seen, ok := writes[read.result]
		if !ok {
			continue
		}
		for value, write := range writes {
			if write.call > seen.answer && write.answer < read.call {
				lost[value] = true
			}
		}
	}
	names := make([]string, 0, len(lost))
	for value := range lost {
		names = append(names, value)
	}
	sort.Strings(names)
	return names
}

// read returns the operations of each key. Refused operations were not done, and reads without an answer give no
// information.
func read(path string) (map[string][]operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	keys := map[string][]operation{}
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		key, op, err := parse(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		idle := op.answer == unknown && (op.kind == "get" || op.kind == "mget")
		if !strings.HasPrefix(op.result, "!") && !idle {
			keys[key] = append(keys[key], op)
		}
	}
	for _, history := range keys {
		numberTwins(history)
	}
	return keys, lines.Err()
}

func parse(line string) (string, operation, error) {
	fields := strings.Fields(line)
	if len(fields) != 7 {
		return "", operation{}, fmt.Errorf("%d fields instead of 7", len(fields))
	}
	op := operation{kind: fields[2], value: fields[3], answer: unknown, result: fields[6]}
	var err error
	if op.client, err = strconv.Atoi(fields[1]); err != nil {
		return "", op, err
	}
	if value, lasts, ok := strings.Cut(fields[3], "/"); ok {
		ms, err := strconv.ParseInt(lasts, 10, 64)
		if err != nil {
			return "", op, err
		}
		op.value, op.lasts = value, ms*1e6
	}
	if op.call, err = strconv.ParseInt(fields[4], 10, 64); err != nil {
		return "", op, err
	}
	if fields[5] != "-" {
		if op.answer, err = strconv.ParseInt(fields[5], 10, 64); err != nil {
			return "", op, err
		}
	}
	switch op.kind {
	case "get", "mget", "set", "setpx", "setnx", "swap", "del", "incr", "pexpire":
		return fields[0], op, nil
	}
	return "", op, fmt.Errorf("no such operation: %s", op.kind)
}

func increment(value string) string {
	if value == none {
		return "1"
	}
	number, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return "not a number"
	}
	return strconv.FormatInt(number+1, 10)
}

func sorted(keys map[string][]operation) []string {
	names := make([]string, 0, len(keys))
	for name := range keys {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
