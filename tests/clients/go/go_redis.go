// go-redis: Client, ClusterClient, and FailoverClient with the any-key ports as Sentinels.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

func goRedisWorks(t trial, kind string, r redis.UniversalClient) {
	t.check(kind, "strings", func() {
		equal(must1(r.SetNX(ctx, key("a"), 1, 0).Result()), true)
		equal(must1(r.SetNX(ctx, key("a"), 2, 0).Result()), false)
		equal(must1(r.SetArgs(ctx, key("a"), "2", redis.SetArgs{Get: true}).Result()), "1")
		equal(must1(r.Append(ctx, key("a"), "xy").Result()), int64(3))
		must(r.MSet(ctx, key("{t}a"), 1, key("{t}b"), 2).Err())
		equal(must1(r.MGet(ctx, key("{t}a"), key("{t}b"), key("{t}c")).Result()), []any{"1", "2", nil})
		equal(must1(r.GetDel(ctx, key("a")).Result()), "2xy")
		equal(r.Get(ctx, key("a")).Err(), redis.Nil)
		large := strings.Repeat("x", 300_000)
		must(r.Set(ctx, key("large"), large, 0).Err())
		equal(must1(r.Get(ctx, key("large")).Result()), large)
	})
	t.check(kind, "expiry", func() {
		must(r.Set(ctx, key("e"), "v", 150*time.Millisecond).Err())
		until(func() bool { return r.Get(ctx, key("e")).Err() == redis.Nil })
		must(r.Set(ctx, key("e"), "v", 0).Err())
		equal(must1(r.Expire(ctx, key("e"), 100*time.Second).Result()), true)
		equal(must1(r.TTL(ctx, key("e")).Result()) > 90*time.Second, true)
		equal(must1(r.Persist(ctx, key("e")).Result()), true)
	})
	t.check(kind, "counters", func() {
		equal([]int64{must1(r.Incr(ctx, key("n")).Result()), must1(r.IncrBy(ctx, key("n"), 9).Result()), must1(r.Decr(ctx, key("n")).Result())}, []int64{1, 10, 9})
	})
	t.check(kind, "pipelines", func() {
		pipe := r.Pipeline()
		for n := range 200 {
			pipe.Set(ctx, key(fmt.Sprint("p", n)), n, 0)
		}
		must1(pipe.Exec(ctx))
		pipe = r.Pipeline()
		for n := range 200 {
			pipe.Get(ctx, key(fmt.Sprint("p", n)))
		}
		for n, reply := range must1(pipe.Exec(ctx)) {
			equal(reply.(*redis.StringCmd).Val(), fmt.Sprint(n))
		}
	})
	t.check(kind, "MULTI", func() {
		var got *redis.StringCmd
		must1(r.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, key("{m}"), 1, 0)
			pipe.Incr(ctx, key("{m}"))
			got = pipe.Get(ctx, key("{m}"))
			return nil
		}))
		equal(got.Val(), "2")
	})
	t.check(kind, "WATCH", func() {
		counter := key("{w}")
		must(r.Set(ctx, counter, 5, 0).Err())
		add := func(between func()) error {
			return r.Watch(ctx, func(tx *redis.Tx) error {
				value := must1(tx.Get(ctx, counter).Int())
				between()
				_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Set(ctx, counter, value+1, 0).Err() })
				return err
			}, counter)
		}
		must(add(func() {}))
		equal(add(func() { must(r.Set(ctx, counter, 100, 0).Err()) }), redis.TxFailedErr)
		equal(must1(r.Get(ctx, counter).Result()), "100")
	})
	t.check(kind, "scripts", func() {
		release := redis.NewScript("if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0 -- " + key(""))
		must(r.Set(ctx, key("s"), "mine", 0).Err())
		equal(must1(release.Run(ctx, r, []string{key("s")}, "other").Int()), 0)
		must(r.ScriptFlush(ctx).Err())
		equal(must1(release.Run(ctx, r, []string{key("s")}, "mine").Int()), 1)
	})
	t.check(kind, "SCAN", func() {
		for n := range 200 {
			must(r.Set(ctx, key(fmt.Sprint("scan", n)), n, 0).Err())
		}
		match, found := key("scan*"), map[string]bool{}
		count := func(one redis.UniversalClient) error {
			all := one.Scan(ctx, 0, match, 50).Iterator()
			for all.Next(ctx) {
				lines.Lock()
				found[all.Val()] = true
				lines.Unlock()
			}
			return all.Err()
		}
		if cluster, is := r.(*redis.ClusterClient); is {
			must(cluster.ForEachMaster(ctx, func(_ context.Context, one *redis.Client) error { return count(one) }))
		} else {
			must(count(r))
		}
		equal(len(found), 200)
	})
	t.check(kind, "Pub/Sub", func() {
		listener := r.Subscribe(ctx, key("channel"))
		defer listener.Close()
		must1(listener.Receive(ctx))
		must(r.Publish(ctx, key("channel"), "hello").Err())
		equal(must1(listener.ReceiveMessage(ctx)).Payload, "hello")
	})
	t.check(kind, "hashes", func() { equal(must1(r.HSet(ctx, key("h"), "field", 1).Result()), int64(1)) })
}

func goRedis() {
	t := newTrial("go-redis", "github.com/redis/go-redis/v9")
	plain := func(node int, more ...func(*redis.Options)) *redis.Client {
		options := &redis.Options{Addr: address("any-key", node)}
		for _, change := range more {
			change(options)
		}
		return redis.NewClient(options)
	}
	cluster := func(more ...func(*redis.ClusterOptions)) *redis.ClusterClient {
		options := &redis.ClusterOptions{Addrs: addresses("cluster", 0)}
		for _, change := range more {
			change(options)
		}
		return redis.NewClusterClient(options)
	}
	// The client asks all Sentinels at once, and takes the first answer. Here this is the node that dies.
	failover := func(reply, dial time.Duration, retries int) *redis.Client {
		var begun atomic.Bool
		r := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "paritas", SentinelAddrs: addresses("any-key", victim), ReadTimeout: reply, DialTimeout: dial, MaxRetries: retries,
			Dialer: func(ctx context.Context, network, to string) (net.Conn, error) {
				if !begun.Load() && to != address("any-key", victim) {
					return nil, errors.New("not yet")
				}
				return (&net.Dialer{Timeout: dial}).DialContext(ctx, network, to)
			},
		})
		must(r.Ping(ctx).Err())
		begun.Store(true)
		return r
	}
	if mode == "work" {
		goRedisWorks(t, "any-key", plain(0))
		goRedisWorks(t, "cluster", cluster())
		t.check("any-key", "RESP2", func() {
			r := plain(1, func(o *redis.Options) { o.Protocol = 2 })
			must(r.Set(ctx, key("a"), 1, 0).Err())
			equal(must1(r.Get(ctx, key("a")).Int()), 1)
		})
		t.check("any-key", "database 1", func() {
			r := plain(0, func(o *redis.Options) { o.DB = 1 })
			must(r.Set(ctx, key("a"), 1, 0).Err())
		})
		t.check("any-key", "Sentinel", func() {
			r := failover(3*time.Second, 5*time.Second, 3)
			must(r.Set(ctx, key("a"), 1, 0).Err())
			equal(must1(r.Get(ctx, key("a")).Int()), 1)
		})
	}
	of := func(how string, r redis.UniversalClient) way {
		return way{how,
			func(name, value string) error { return r.Set(ctx, name, value, 0).Err() },
			func(name string) (string, error) {
				found, err := r.Get(ctx, name).Result()
				if errors.Is(err, redis.Nil) {
					return "nothing", nil
				}
				return found, err
			}}
	}
	if mode == "ride" {
		// By default a client reads the map of slots again after 60 s, if no node sends it elsewhere.
		second := func(o *redis.ClusterOptions) {
			o.ReadTimeout, o.DialTimeout, o.ClusterStateReloadInterval = time.Second, time.Second, time.Second
		}
		t.ride(
			of("any-key port, another node dies", plain(0)),
			of("any-key port, its own node dies", plain(victim)),
			of("any-key ports as Sentinels, its own node dies; `ReadTimeout` 1 s, `DialTimeout` 5 s, `MaxRetries` 2", failover(time.Second, 5*time.Second, 2)),
			of("cluster port", cluster()),
			of("cluster port; `ReadTimeout`, `DialTimeout`, `ClusterStateReloadInterval` 1 s", cluster(second)),
		)
	}
}
