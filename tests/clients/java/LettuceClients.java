import io.lettuce.core.ClientOptions;
import io.lettuce.core.KeyValue;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.async.RedisClusterAsyncCommands;
import io.lettuce.core.cluster.api.sync.RedisClusterCommands;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** Lettuce: RedisClient and RedisClusterClient. */
final class LettuceClients {
    public static void main(String[] arguments) throws Exception {
        Trial.begin(arguments);
        Trial trial = new Trial("Lettuce", RedisClient.class);
        if (Trial.mode.equals("work")) {
            RedisClient client = RedisClient.create(uri("any-key", 0));
            StatefulRedisConnection<String, String> plain = client.connect();
            works(trial, "any-key", plain.sync(), plain.async());
            transactions(trial, client);
            trial.check("any-key", "client-side cache", () -> {
                Map<String, String> map = new ConcurrentHashMap<>();
                var cache = ClientSideCaching.enable(CacheAccessor.forMap(map), client.connect(), TrackingArgs.Builder.enabled());
                plain.sync().set(Trial.key("c"), "1");
                Trial.equal(cache.get(Trial.key("c")), "1");
            });
            trial.check("any-key", "Pub/Sub", () -> client.connectPubSub().sync().subscribe(Trial.key("channel")));
            trial.check("any-key", "database 1", () -> {
                RedisURI one = uri("any-key", 0);
                one.setDatabase(1);
                RedisClient.create(one).connect().sync().set(Trial.key("a"), "1");
            });
            trial.check("any-key", "Sentinel", () -> {
                RedisCommands<String, String> r = RedisClient.create(sentinels()).connect().sync();
                Trial.equal(r.set(Trial.key("a"), "1"), "OK");
            });
            var cluster = RedisClusterClient.create(uris()).connect();
            works(trial, "cluster", cluster.sync(), cluster.async());
        } else {
            trial.ride(
                way("any-key port, another node dies", RedisClient.create(uri("any-key", 0)).connect().sync()),
                way("any-key port, its own node dies", RedisClient.create(uri("any-key", Trial.victim)).connect().sync()),
                way("any-key ports as Sentinels, its own node dies; a time-out of 1 s", timed(RedisClient.create(sentinels())).connect().sync()),
                way("cluster port", RedisClusterClient.create(uris()).connect().sync()),
                way("cluster port; a time-out of 1 s, adaptive refresh", adaptive().connect().sync()));
        }
        System.exit(0);
    }

    private static RedisURI uri(String kind, int node) {
        return RedisURI.create("127.0.0.1", Trial.port(kind, node));
    }

    private static List<RedisURI> uris() {
        return Trial.ports("cluster", 0).stream().map(port -> RedisURI.create("127.0.0.1", port)).toList();
    }

    /** Of these nodes, the client takes the first that answers. Here that is the one that dies. */
    private static RedisURI sentinels() {
        List<Integer> ports = Trial.ports("any-key", Trial.victim);
        RedisURI.Builder all = RedisURI.Builder.sentinel("127.0.0.1", ports.get(0), "paritas");
        ports.subList(1, ports.size()).forEach(port -> all.withSentinel("127.0.0.1", port));
        return all.build();
    }

    private static RedisClient timed(RedisClient client) {
        client.setOptions(ClientOptions.builder().timeoutOptions(TimeoutOptions.enabled(Duration.ofSeconds(1))).build());
        return client;
    }

    private static RedisClusterClient adaptive() {
        RedisClusterClient client = RedisClusterClient.create(uris());
        ClusterTopologyRefreshOptions refresh = ClusterTopologyRefreshOptions.builder()
            .enableAllAdaptiveRefreshTriggers().adaptiveRefreshTriggersTimeout(Duration.ofMillis(500)).enablePeriodicRefresh(Duration.ofSeconds(1)).build();
        client.setOptions(ClusterClientOptions.builder().topologyRefreshOptions(refresh)
            .timeoutOptions(TimeoutOptions.enabled(Duration.ofSeconds(1))).build());
        return client;
    }

    private static Trial.Way way(String how, RedisClusterCommands<String, String> r) {
        return new Trial.Way(how, r::set, r::get);
    }

    private static void works(Trial trial, String kind, RedisClusterCommands<String, String> r, RedisClusterAsyncCommands<String, String> later) {
        trial.check(kind, "strings", () -> {
            Trial.equal(r.set(Trial.key("a"), "1", SetArgs.Builder.nx()), "OK");
            Trial.equal(r.set(Trial.key("a"), "2", SetArgs.Builder.nx()), null);
            Trial.equal(r.setGet(Trial.key("a"), "2"), "1");
            Trial.equal(r.append(Trial.key("a"), "xy"), 3L);
            Trial.equal(r.mset(Map.of(Trial.key("a1"), "1", Trial.key("b1"), "2")), "OK");
            Trial.equal(r.mget(Trial.key("a1"), Trial.key("b1")), List.of(KeyValue.just(Trial.key("a1"), "1"), KeyValue.just(Trial.key("b1"), "2")));
            String large = "x".repeat(300_000);
            r.set(Trial.key("large"), large);
            Trial.equal(r.get(Trial.key("large")), large);
        });
        trial.check(kind, "expiry", () -> {
            r.psetex(Trial.key("e"), 150, "v");
            Trial.until(() -> r.get(Trial.key("e")) == null);
            r.set(Trial.key("e"), "v");
            Trial.equal(r.expire(Trial.key("e"), 100), true);
            Trial.equal(r.ttl(Trial.key("e")) > 90, true);
        });
        trial.check(kind, "counters", () ->
            Trial.equal(List.of(r.incr(Trial.key("n")), r.incrby(Trial.key("n"), 9), r.decr(Trial.key("n"))), List.of(1L, 10L, 9L)));
        trial.check(kind, "pipelines", () -> {
            List<RedisFuture<String>> found = new ArrayList<>();
            for (int n = 0; n < 200; n += 1) {
                later.set(Trial.key("p" + n), "" + n);
                found.add(later.get(Trial.key("p" + n)));
            }
            Trial.equal(found.get(199).get(), "199");
        });
        trial.check(kind, "scripts", () -> {
            String release = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0 -- " + Trial.key("");
            String[] keys = {Trial.key("s")};
            r.set(Trial.key("s"), "mine");
            Trial.equal(r.eval(release, ScriptOutputType.INTEGER, keys, "other"), 0L);
            Trial.equal(r.evalsha(r.scriptLoad(release), ScriptOutputType.INTEGER, keys, "mine"), 1L);
        });
        trial.check(kind, "SCAN", () -> {
            for (int n = 0; n < 200; n += 1) {
                r.set(Trial.key("scan" + n), "");
            }
            Set<String> found = new HashSet<>();
            ScanIterator.scan(r, ScanArgs.Builder.limit(50).match(Trial.key("scan*"))).forEachRemaining(found::add);
            Trial.equal(found.size(), 200);
        });
        trial.check(kind, "hashes", () -> Trial.equal(r.hset(Trial.key("h"), "field", "1"), true));
    }

    private static void transactions(Trial trial, RedisClient client) {
        RedisCommands<String, String> r = client.connect().sync();
        RedisCommands<String, String> other = client.connect().sync();
        trial.check("any-key", "MULTI, WATCH", () -> {
            for (boolean disturbed : new boolean[] {false, true}) {
                r.watch(Trial.key("{w}"));
                if (disturbed) {
                    other.set(Trial.key("{w}"), "100");
                }
                r.multi();
                r.incr(Trial.key("{w}"));
                TransactionResult result = r.exec();
                Trial.equal(result.wasDiscarded(), disturbed);
            }
        });
    }
}
