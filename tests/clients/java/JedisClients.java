import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import redis.clients.jedis.AbstractPipeline;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisNoScriptException;
import redis.clients.jedis.params.SetParams;

/** Jedis: RedisClient and RedisClusterClient. */
final class JedisClients {
    public static void main(String[] arguments) throws Exception {
        Trial.begin(arguments);
        Trial trial = new Trial("Jedis", RedisClient.class);
        if (Trial.mode.equals("work")) {
            try (RedisClient plain = plain(0, 2_000)) {
                works(trial, "any-key", plain);
                transactions(trial, plain);
            }
            try (RedisClusterClient cluster = cluster(2_000)) {
                works(trial, "cluster", cluster);
            }
            trial.check("any-key", "database 1", () -> {
                try (RedisClient client = RedisClient.create("redis://127.0.0.1:" + Trial.port("any-key", 0) + "/1")) {
                    client.set(Trial.key("a"), "1");
                }
            });
        } else {
            trial.ride(
                way("any-key port, another node dies", plain(0, 2_000)),
                way("any-key port, its own node dies", plain(Trial.victim, 2_000)),
                way("cluster port", cluster(2_000)),
                way("cluster port; `socketTimeoutMillis(1000)`", cluster(1_000)));
        }
        System.exit(0);
    }

    private static RedisClient plain(int node, int replyMs) {
        DefaultJedisClientConfig config = DefaultJedisClientConfig.builder().socketTimeoutMillis(replyMs).build();
        return RedisClient.builder().hostAndPort("127.0.0.1", Trial.port("any-key", node)).clientConfig(config).build();
    }

    private static RedisClusterClient cluster(int replyMs) {
        Set<HostAndPort> nodes = Trial.ports("cluster", 0).stream().map(port -> new HostAndPort("127.0.0.1", port)).collect(Collectors.toSet());
        DefaultJedisClientConfig config = DefaultJedisClientConfig.builder().socketTimeoutMillis(replyMs).build();
        return RedisClusterClient.builder().nodes(nodes).clientConfig(config).build();
    }

    private static Trial.Way way(String how, UnifiedJedis client) {
        return new Trial.Way(how, client::set, client::get);
    }

    private static void works(Trial trial, String kind, UnifiedJedis r) {
        trial.check(kind, "strings", () -> {
            Trial.equal(r.set(Trial.key("a"), "1", SetParams.setParams().nx()), "OK");
            Trial.equal(r.set(Trial.key("a"), "2", SetParams.setParams().nx()), null);
            Trial.equal(r.setGet(Trial.key("a"), "2"), "1");
            Trial.equal(r.append(Trial.key("a"), "xy"), 3L);
            Trial.equal(r.mset(Trial.key("{t}a"), "1", Trial.key("{t}b"), "2"), "OK");
            Trial.equal(r.mget(Trial.key("{t}a"), Trial.key("{t}b")), List.of("1", "2"));
            String large = "x".repeat(300_000);
            r.set(Trial.key("large"), large);
            Trial.equal(r.get(Trial.key("large")), large);
        });
        trial.check(kind, "expiry", () -> {
            r.psetex(Trial.key("e"), 150, "v");
            Trial.until(() -> r.get(Trial.key("e")) == null);
            r.set(Trial.key("e"), "v");
            Trial.equal(r.expire(Trial.key("e"), 100), 1L);
            Trial.equal(r.ttl(Trial.key("e")) > 90, true);
            Trial.equal(r.persist(Trial.key("e")), 1L);
        });
        trial.check(kind, "counters", () ->
            Trial.equal(List.of(r.incr(Trial.key("n")), r.incrBy(Trial.key("n"), 9), r.decr(Trial.key("n"))), List.of(1L, 10L, 9L)));
        trial.check(kind, "pipelines", () -> {
            try (AbstractPipeline pipe = r.pipelined()) {
                for (int n = 0; n < 200; n += 1) {
                    pipe.set(Trial.key("p" + n), "" + n);
                }
                List<Response<String>> found = new java.util.ArrayList<>();
                for (int n = 0; n < 200; n += 1) {
                    found.add(pipe.get(Trial.key("p" + n)));
                }
                pipe.sync();
                Trial.equal(found.get(199).get(), "199");
            }
        });
        trial.check(kind, "scripts", () -> {
            String release = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0 -- " + Trial.key("");
            List<String> keys = List.of(Trial.key("s"));
            r.set(Trial.key("s"), "mine");
            Trial.equal(r.eval(release, keys, List.of("other")), 0L);
            String hash = r.scriptLoad(release, Trial.key("s"));
            Trial.equal(r.evalsha(hash, keys, List.of("mine")), 1L);
            r.scriptFlush(Trial.key("s"));
            try {
                r.evalsha("0".repeat(40), keys, List.of());
                throw new AssertionError("an unknown script ran");
            } catch (JedisNoScriptException expected) {
                Trial.equal(r.eval(release, keys, List.of("mine")), 0L);
            }
        });
        trial.check(kind, "SCAN", () -> {
            for (int n = 0; n < 200; n += 1) {
                r.set(Trial.key("{scan}" + n), "");
            }
            Set<String> found = new HashSet<>();
            var pages = r.scanIteration(50, Trial.key("{scan}*"));
            while (!pages.isIterationCompleted()) {
                found.addAll(pages.nextBatchList());
            }
            Trial.equal(found.size(), 200);
        });
        trial.check(kind, "Pub/Sub", () -> r.subscribe(new JedisPubSub() {
            @Override
            public void onSubscribe(String channel, int count) {
                unsubscribe();
            }
        }, Trial.key("channel")));
        trial.check(kind, "hashes", () -> Trial.equal(r.hset(Trial.key("h"), "field", "1"), 1L));
    }

    /** Jedis has no transactions in a cluster. */
    private static void transactions(Trial trial, UnifiedJedis r) {
        trial.check("any-key", "MULTI", () -> {
            try (AbstractTransaction transaction = r.multi()) {
                transaction.set(Trial.key("{m}"), "1");
                transaction.incr(Trial.key("{m}"));
                Response<String> got = transaction.get(Trial.key("{m}"));
                Trial.equal(transaction.exec(), List.of("OK", 2L, "2"));
                Trial.equal(got.get(), "2");
            }
        });
        trial.check("any-key", "WATCH", () -> {
            for (boolean disturbed : new boolean[] {false, true}) {
                try (AbstractTransaction transaction = r.transaction(false)) {
                    transaction.watch(Trial.key("{w}"));
                    if (disturbed) {
                        r.set(Trial.key("{w}"), "100");
                    }
                    transaction.multi();
                    transaction.incr(Trial.key("{w}"));
                    Trial.equal(transaction.exec(), disturbed ? null : List.of(1L));
                }
            }
        });
    }
}
