// rueidis: without its cache (CLIENT TRACKING is not there), and how it fails with it.
package main

import (
	"fmt"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

func rueidisClient() {
	t := newTrial("rueidis", "github.com/redis/rueidis")
	connect := func(option rueidis.ClientOption) rueidis.Client {
		option.DisableCache = true
		return must1(rueidis.NewClient(option))
	}
	plain := func(node int) rueidis.ClientOption {
		return rueidis.ClientOption{InitAddress: []string{address("any-key", node)}, ForceSingleClient: true}
	}
	cluster := rueidis.ClientOption{InitAddress: addresses("cluster", 0)}
	if mode == "work" {
		for _, one := range []struct {
			kind   string
			option rueidis.ClientOption
		}{{"any-key", plain(0)}, {"cluster", cluster}} {
			r := connect(one.option)
			b := r.B
			t.check(one.kind, "strings", func() {
				must(r.Do(ctx, b().Set().Key(key("a")).Value("1").Nx().Build()).Error())
				equal(rueidis.IsRedisNil(r.Do(ctx, b().Set().Key(key("a")).Value("2").Nx().Build()).Error()), true)
				equal(must1(r.Do(ctx, b().Append().Key(key("a")).Value("xy").Build()).AsInt64()), int64(3))
				must(r.Do(ctx, b().Mset().KeyValue().KeyValue(key("{t}a"), "1").KeyValue(key("{t}b"), "2").Build()).Error())
				equal(must1(r.Do(ctx, b().Mget().Key(key("{t}a"), key("{t}b")).Build()).AsStrSlice()), []string{"1", "2"})
			})
			t.check(one.kind, "expiry", func() {
				must(r.Do(ctx, b().Set().Key(key("e")).Value("v").PxMilliseconds(150).Build()).Error())
				until(func() bool { return rueidis.IsRedisNil(r.Do(ctx, b().Get().Key(key("e")).Build()).Error()) })
			})
			t.check(one.kind, "counters", func() {
				equal(must1(r.Do(ctx, b().Incr().Key(key("n")).Build()).AsInt64()), int64(1))
				equal(must1(r.Do(ctx, b().Incrby().Key(key("n")).Increment(9).Build()).AsInt64()), int64(10))
			})
			t.check(one.kind, "pipelines", func() {
				var commands rueidis.Commands
				for n := range 200 {
					commands = append(commands, b().Set().Key(key(fmt.Sprint("p", n))).Value(fmt.Sprint(n)).Build())
				}
				for _, reply := range r.DoMulti(ctx, commands...) {
					must(reply.Error())
				}
				found := must1(rueidis.MGet(r, ctx, []string{key("p7"), key("p199")}))
				last := found[key("p199")]
				equal(must1(last.ToString()), "199")
			})
			t.check(one.kind, "MULTI, WATCH", func() {
				must(r.Dedicated(func(c rueidis.DedicatedClient) error {
					must(c.Do(ctx, c.B().Watch().Key(key("{w}")).Build()).Error())
					replies := c.DoMulti(ctx, c.B().Multi().Build(), c.B().Incr().Key(key("{w}")).Build(), c.B().Exec().Build())
					equal(must1(replies[2].AsIntSlice()), []int64{1})
					must(c.Do(ctx, c.B().Watch().Key(key("{w}")).Build()).Error())
					must(r.Do(ctx, b().Set().Key(key("{w}")).Value("100").Build()).Error())
					replies = c.DoMulti(ctx, c.B().Multi().Build(), c.B().Incr().Key(key("{w}")).Build(), c.B().Exec().Build())
					equal(rueidis.IsRedisNil(replies[2].Error()), true)
					return nil
				}))
			})
			t.check(one.kind, "scripts", func() {
				release := rueidis.NewLuaScript("if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0 -- " + key(""))
				must(r.Do(ctx, b().Set().Key(key("s")).Value("mine").Build()).Error())
				equal(must1(release.Exec(ctx, r, []string{key("s")}, []string{"other"}).AsInt64()), int64(0))
				equal(must1(release.Exec(ctx, r, []string{key("s")}, []string{"mine"}).AsInt64()), int64(1))
			})
			t.check(one.kind, "DoCache with DisableCache", func() {
				must(r.Do(ctx, b().Set().Key(key("c")).Value("1").Build()).Error())
				equal(must1(r.DoCache(ctx, b().Get().Key(key("c")).Cache(), time.Minute).ToString()), "1")
			})
			t.check(one.kind, "Pub/Sub", func() { must(r.Do(ctx, b().Publish().Channel(key("c")).Message("hello").Build()).Error()) })
			t.check(one.kind, "hashes", func() { must(r.Do(ctx, b().Hset().Key(key("h")).FieldValue().FieldValue("f", "1").Build()).Error()) })
			r.Close()
			t.check(one.kind, "client-side cache", func() {
				option := one.option
				client, err := rueidis.NewClient(option)
				must(err)
				client.Close()
			})
		}
		t.check("any-key", "Sentinel", func() {
			option := rueidis.ClientOption{InitAddress: addresses("any-key", 0), Sentinel: rueidis.SentinelOption{MasterSet: "paritas"}, DisableCache: true}
			r := must1(rueidis.NewClient(option))
			defer r.Close()
			must(r.Do(ctx, r.B().Set().Key(key("a")).Value("1").Build()).Error())
		})
		t.check("any-key", "rueidislock", func() {
			option := rueidislock.LockerOption{ClientOption: plain(0), KeyMajority: 1, NoLoopTracking: true}
			option.ClientOption.DisableCache = true
			locker := must1(rueidislock.NewLocker(option))
			defer locker.Close()
			_, release, err := locker.TryWithContext(ctx, key("lock"))
			must(err)
			release()
		})
	}
	of := func(how string, option rueidis.ClientOption) way {
		r := connect(option)
		return way{how,
			func(name, value string) error { return r.Do(ctx, r.B().Set().Key(name).Value(value).Build()).Error() },
			func(name string) (string, error) {
				found, err := r.Do(ctx, r.B().Get().Key(name).Build()).ToString()
				if rueidis.IsRedisNil(err) {
					return "nothing", nil
				}
				return found, err
			}}
	}
	if mode == "ride" {
		second := func(option rueidis.ClientOption) rueidis.ClientOption {
			option.ConnWriteTimeout, option.Dialer.Timeout, option.Dialer.KeepAlive = time.Second, time.Second, time.Second
			return option
		}
		t.ride(
			of("any-key port, another node dies", plain(0)),
			of("any-key port, its own node dies", plain(victim)),
			of("cluster port", cluster),
			of("cluster port; `ConnWriteTimeout`, `Dialer.Timeout`, `Dialer.KeepAlive` 1 s", second(cluster)),
		)
	}
}
