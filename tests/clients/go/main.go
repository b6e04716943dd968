package main

import (
	"fmt"
	"os"
	"strconv"
)

// Each client by the name of its file.
var clients = map[string]func(){
	"go_redis":   goRedis,
	"rueidis":    rueidisClient,
	"locks":      locks,
	"limiters":   limiters,
	"gomemcache": gomemcache,
}

func main() {
	work := clients[os.Args[1]]
	if work == nil {
		fmt.Fprintln(os.Stderr, "no such client:", os.Args[1])
		os.Exit(2)
	}
	mode = os.Args[2]
	for n, place := range []*int{&base, &nodes, &victim} {
		*place = must1(strconv.Atoi(os.Args[3+n]))
	}
	work()
}
