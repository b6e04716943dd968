package main

import (
	"sort"
	"strings"

	"github.com/anishathalye/porcupine"
)

// unknown is the return time of an operation of unknown outcome: it may be done at any time after its call. The search
// may place it after all others, which is the same as never.
const unknown = int64(1) << 62

// clockSlack is the time by which a key may expire too early or too late: the server reads its clock once a turn, and a
// busy machine may delay it between reading and acting.
const clockSlack = int64(250e6)

// none is the value of a missing key. `none` and `ok` are also written so in histories.
const none = "nil"

// operation is what a client asked and was answered.
type operation struct {
	client       int
	kind         string // get mget set setpx setnx swap del incr pexpire
	value        string // what to write
	lasts        int64  // ns
	call, answer int64  // ns; answer is `unknown` without one
	result       string
	twin         int // number of equal operations of unknown outcome called before it
}

// writes tells whether the operation writes a value of its own.
func (op operation) writes() bool {
	return op.kind == "set" || op.kind == "setpx" || op.kind == "setnx" || op.kind == "swap"
}

// state is the state of a key. A key with an expiry dies between endFirst and endLast; endLast 0 means no expiry.
type state struct {
	value             string
	endFirst, endLast int64
	// Numbers of INCR and DEL of unknown outcome that were done. They are interchangeable, so the search tries them only
	// in the order of their calls: n of them give n + 1 cases instead of 2^n.
	increments, deletions int
}

// numberTwins fills in `twin` of a key's operations.
func numberTwins(history []operation) {
	order := make([]int, len(history))
	for at := range order {
		order[at] = at
	}
	sort.SliceStable(order, func(a, b int) bool { return history[order[a]].call < history[order[b]].call })
	seen := map[string]int{}
	for _, at := range order {
		if op := &history[at]; op.answer == unknown {
			op.twin = seen[op.kind]
			seen[op.kind]++
		}
	}
}

// step returns the key after the operation, or false if it cannot have been answered so.
func step(before state, op operation) (bool, state) {
	increments, deletions := before.increments, before.deletions
	if op.answer == unknown && op.kind == "incr" {
		if op.twin != increments {
			return false, before
		}
		increments++
	}
	if op.answer == unknown && op.kind == "del" {
		if op.twin != deletions {
			return false, before
		}
		deletions++
	}
	possible, after := stepKey(before, op)
	after.increments, after.deletions = increments, deletions
	return possible, after
}

// stepKey is step for the part of the key that clients can see.
func stepKey(key state, op operation) (bool, state) {
	if strings.HasPrefix(op.result, "error:") {
		return false, key
	}
	mayLive := key.value != none && (key.endLast == 0 || op.call <= key.endLast)
	mayBeDead := key.value == none || (key.endLast != 0 && op.answer >= key.endFirst)
	dead := state{value: none}
	known := op.answer != unknown
	endsAt := func(value string) state {
		after := state{value: value, endFirst: op.call + op.lasts - clockSlack, endLast: unknown}
		if known {
			after.endLast = op.answer + op.lasts + clockSlack
		}
		return after
	}

	// The key before, as the answer shows it: its value, or that there was none.
	saw := func(value string) bool {
		if !known {
			return true
		}
		if value == none {
			return mayBeDead
		}
		return mayLive && value == key.value
	}
	switch op.kind {
	case "get", "mget":
		if known && op.result == none {
			return saw(none), dead
		}
		return saw(op.result), key
	case "set":
		return true, state{value: op.value}
	case "setpx":
		return true, endsAt(op.value)
	case "swap":
		return saw(op.result), state{value: op.value}
	case "setnx":
		// Only used for keys without an expiry, so the key either exists or not.
		if op.result == "ok" || (!known && key.value == none) {
			return key.value == none, state{value: op.value}
		}
		return key.value != none, key
	case "del":
		return !known || (op.result == "1" && mayLive) || (op.result == "0" && mayBeDead), dead
	case "incr":
		after := state{value: increment(key.value)}
		return !known || op.result == after.value, after
	case "pexpire":
		if !known {
			// It changes the expiry, or finds no key. A key that is already dead stays dead in either case.
			if key.value == none {
				return true, key
			}
			after := endsAt(key.value)
			if key.endLast != 0 && key.endFirst < after.endFirst {
				after.endFirst = key.endFirst
			}
			return true, after
		}
		if op.result == "0" {
			return mayBeDead, dead
		}
		return mayLive, endsAt(key.value)
	}
	panic("no such operation: " + op.kind)
}

// model is the model of one key for Porcupine.
var model = porcupine.Model{
	Init: func() interface{} { return state{value: none} },
	Step: func(key, input, _ interface{}) (bool, interface{}) {
		return step(key.(state), input.(operation))
	},
}
