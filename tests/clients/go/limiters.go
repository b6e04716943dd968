// redis_rate and ulule/limiter, over go-redis.
package main

import (
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	store "github.com/ulule/limiter/v3/drivers/store/redis"
)

func limiters() {
	plain := redis.NewClient(&redis.Options{Addr: address("any-key", 1)})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses("cluster", 0)})
	for _, one := range []struct {
		kind string
		r    redis.UniversalClient
	}{{"any-key", plain}, {"cluster", cluster}} {
		newTrial("redis_rate", "github.com/go-redis/redis_rate/v10").check(one.kind, "Allow, AllowN, AllowAtMost, Reset", func() {
			limit := redis_rate.NewLimiter(one.r)
			three := redis_rate.PerHour(3)
			for n := range 5 {
				equal(must1(limit.Allow(ctx, key("user"), three)).Allowed, map[bool]int{true: 1, false: 0}[n < 3])
			}
			must(limit.Reset(ctx, key("user")))
			equal(must1(limit.AllowN(ctx, key("user"), three, 2)).Remaining, 1)
			equal(must1(limit.AllowAtMost(ctx, key("user"), three, 5)).Allowed, 1)
		})
		newTrial("ulule/limiter", "github.com/ulule/limiter/v3").check(one.kind, "Get, Peek, Reset", func() {
			made := must1(store.NewStoreWithOptions(one.r, limiter.StoreOptions{Prefix: key("")}))
			limit := limiter.New(made, limiter.Rate{Period: time.Hour, Limit: 3})
			for n := range 5 {
				equal(must1(limit.Get(ctx, "user")).Reached, n >= 3)
			}
			equal(must1(limit.Peek(ctx, "user")).Reached, true)
			must1(limit.Reset(ctx, "user"))
			equal(must1(limit.Get(ctx, "user")).Remaining, int64(2))
		})
	}
}
