// redsync and bsm/redislock, over go-redis.
package main

import (
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func locks() {
	plain := redis.NewClient(&redis.Options{Addr: address("any-key", 5)})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses("cluster", 0)})
	for _, one := range []struct {
		kind string
		r    redis.UniversalClient
	}{{"any-key", plain}, {"cluster", cluster}} {
		newTrial("redsync", "github.com/go-redsync/redsync/v4").check(one.kind, "Lock, TryLock, Extend, Unlock", func() {
			made := redsync.New(goredis.NewPool(one.r))
			mutex := made.NewMutex(key("lock"), redsync.WithExpiry(5*time.Second))
			must(mutex.Lock())
			equal(made.NewMutex(key("lock")).TryLock() != nil, true)
			equal(must1(mutex.Extend()), true)
			equal(must1(mutex.Unlock()), true)
			other := made.NewMutex(key("lock"))
			must(other.TryLock())
			equal(must1(other.Unlock()), true)
			_, err := mutex.Unlock()
			equal(err != nil, true)
		})
		newTrial("bsm/redislock", "github.com/bsm/redislock").check(one.kind, "Obtain, Refresh, TTL, Release", func() {
			locker := redislock.New(one.r)
			lock := must1(locker.Obtain(ctx, key("lock"), 5*time.Second, nil))
			_, err := locker.Obtain(ctx, key("lock"), time.Second, nil)
			equal(err, redislock.ErrNotObtained)
			must(lock.Refresh(ctx, 10*time.Second, nil))
			equal(must1(lock.TTL(ctx)) > 5*time.Second, true)
			must(lock.Release(ctx))
			equal(lock.Release(ctx), redislock.ErrLockNotHeld)
		})
	}
}
