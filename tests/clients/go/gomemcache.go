// gomemcache, with one server and with all.
package main

import (
	"fmt"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

func gomemcache() {
	t := newTrial("gomemcache", "github.com/bradfitz/gomemcache")
	connect := func(wait time.Duration, servers ...string) *memcache.Client {
		c := memcache.New(servers...)
		c.Timeout = wait
		return c
	}
	if mode == "work" {
		for _, servers := range [][]string{addresses("memcached", 0)[:1], addresses("memcached", 0)} {
			name := map[bool]string{true: "one node", false: "all nodes"}[len(servers) == 1]
			c := connect(timeout, servers...)
			t.check("memcached", name+": every command", func() {
				must(c.Ping())
				set := func(name, value string) *memcache.Item {
					return &memcache.Item{Key: key(name), Value: []byte(value), Flags: 7}
				}
				must(c.Set(set("a", "1")))
				equal(c.Add(set("a", "2")), memcache.ErrNotStored)
				must(c.Replace(set("a", "3")))
				must(c.Append(set("a", "y")))
				must(c.Prepend(set("a", "x")))
				item := must1(c.Get(key("a")))
				equal([]any{string(item.Value), item.Flags}, []any{"x3y", uint32(7)})
				item.Value = []byte("new")
				must(c.CompareAndSwap(item))
				equal(c.CompareAndSwap(item), memcache.ErrCASConflict)
				must(c.Set(set("n", "5")))
				equal([]uint64{must1(c.Increment(key("n"), 7)), must1(c.Decrement(key("n"), 20))}, []uint64{12, 0})
				var names []string
				for n := range 50 {
					names = append(names, key(fmt.Sprint("m", n)))
					must(c.Set(set(fmt.Sprint("m", n), fmt.Sprint(n))))
				}
				equal(len(must1(c.GetMulti(append(names, key("no"))))), 50)
				must(c.Touch(key("a"), 1))
				until(func() bool { _, err := c.Get(key("a")); return err == memcache.ErrCacheMiss })
				must(c.Delete(key("n")))
				equal(c.Delete(key("n")), memcache.ErrCacheMiss)
			})
		}
	}
	of := func(how string, c *memcache.Client) way {
		return way{how,
			func(name, value string) error { return c.Set(&memcache.Item{Key: name, Value: []byte(value)}) },
			func(name string) (string, error) {
				item, err := c.Get(name)
				if err != nil {
					return "", err
				}
				return string(item.Value), nil
			}}
	}
	if mode == "ride" {
		t.ride(
			of("memcached port, another node dies", connect(memcache.DefaultTimeout, address("memcached", 0))),
			of("memcached port, its own node dies", connect(memcache.DefaultTimeout, address("memcached", victim))),
			of("memcached ports of all nodes", connect(memcache.DefaultTimeout, addresses("memcached", 0)...)),
		)
	}
}
