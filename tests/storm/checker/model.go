package main

import (
	"sort"
	"strings"

	"github.com/anishathalye/porcupine"
)

// unknown is the return time of an operation whose outcome nobody knows: it may happen at any time after its call.
// The search may put it behind everything else, which is as if it had never happened.
const unknown = int64(1) << 62

// clockSlack is how much too early or late a key may die: the server reads its clock once a turn, and a busy machine may
// let it wait between reading and acting.
const clockSlack = int64(250e6)

// none is the value of a key that is not there; `none` and `ok` stand so in histories too.
const none = "nil"

// operation is what a client asked, and what it was told.
type operation struct {
	client       int
	kind         string // get mget set setpx setnx swap del incr pexpire
	value        string // what to write
	lasts        int64  // ns
	call, answer int64  // ns; answer is `unknown` without one
	result       string
	twin         int // how many alike of unknown outcome were called before it
}

// state is one key. A key with an end dies at some instant between endFirst and endLast; endLast 0 is no end.
type state struct {
	value             string
	endFirst, endLast int64
	// How many INCR and DEL of unknown outcome have happened. One is like the other, so that the search need only try them in
	// the order of their calls: n of them are n + 1 cases, not 2^n.
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

// step gives the key after the operation, or false if it cannot have been answered so.
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

// stepKey is step for what a client can see of the key.
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

	// What the answer says about the key before: its value, or that there was none.
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
		// Never asked of a key with an end, so that it is there or not.
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
			// It moves the end, or finds no key; what is dead already stays so in every reading of this.
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

// model is one key for Porcupine.
var model = porcupine.Model{
	Init: func() interface{} { return state{value: none} },
	Step: func(key, input, _ interface{}) (bool, interface{}) {
		return step(key.(state), input.(operation))
	},
}
