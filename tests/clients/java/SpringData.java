import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.springframework.cache.Cache;
import org.springframework.data.redis.cache.RedisCacheConfiguration;
import org.springframework.data.redis.cache.RedisCacheManager;
import org.springframework.data.redis.connection.RedisClusterConfiguration;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.RedisCallback;
import org.springframework.data.redis.core.RedisOperations;
import org.springframework.data.redis.core.SessionCallback;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.RedisScript;

/** Spring Data Redis over Lettuce: StringRedisTemplate and RedisCacheManager. */
final class SpringData {
    public static void main(String[] arguments) {
        Trial.begin(arguments);
        Trial trial = new Trial("Spring Data Redis", StringRedisTemplate.class);
        works(trial, "any-key", new LettuceConnectionFactory(new RedisStandaloneConfiguration("127.0.0.1", Trial.port("any-key", 2))));
        works(trial, "cluster", new LettuceConnectionFactory(
            new RedisClusterConfiguration(Trial.ports("cluster", 0).stream().map(port -> "127.0.0.1:" + port).toList())));
        System.exit(0);
    }

    private static void works(Trial trial, String kind, LettuceConnectionFactory factory) {
        factory.afterPropertiesSet();
        factory.start();
        StringRedisTemplate template = new StringRedisTemplate(factory);
        template.afterPropertiesSet();
        var values = template.opsForValue();
        trial.check(kind, "opsForValue: strings, counters, expiry, many", () -> {
            Trial.equal(values.setIfAbsent(Trial.key("a"), "1", Duration.ofSeconds(100)), true);
            Trial.equal(values.setIfAbsent(Trial.key("a"), "2"), false);
            Trial.equal(values.getAndSet(Trial.key("a"), "2"), "1");
            Trial.equal(values.append(Trial.key("a"), "xy"), 3);
            Trial.equal(values.increment(Trial.key("n"), 5), 5L);
            values.multiSet(Map.of(Trial.key("{t}a"), "1", Trial.key("{t}b"), "2"));
            Trial.equal(values.multiGet(List.of(Trial.key("{t}a"), Trial.key("{t}b"))), List.of("1", "2"));
            values.set(Trial.key("e"), "v", Duration.ofMillis(150));
            Trial.until(() -> values.get(Trial.key("e")) == null);
            Trial.equal(template.delete(List.of(Trial.key("a"), Trial.key("n"), Trial.key("no"))), 2L);
        });
        trial.check(kind, "executePipelined", () -> {
            List<Object> replies = template.executePipelined((RedisCallback<Object>) connection -> {
                for (int n = 0; n < 100; n += 1) {
                    connection.stringCommands().set(Trial.key("p" + n).getBytes(), ("" + n).getBytes());
                }
                return null;
            });
            Trial.equal(replies.size(), 100);
            Trial.equal(values.get(Trial.key("p99")), "99");
        });
        if (kind.equals("any-key")) {
            // Spring refuses MULTI in a cluster.
            trial.check(kind, "SessionCallback: MULTI", () -> Trial.equal(template.execute(new SessionCallback<List<Object>>() {
                @Override
                @SuppressWarnings("unchecked")
                public <K, V> List<Object> execute(RedisOperations<K, V> operations) {
                    RedisOperations<String, String> own = (RedisOperations<String, String>) operations;
                    own.watch(Trial.key("{m}"));
                    own.multi();
                    own.opsForValue().increment(Trial.key("{m}"));
                    own.opsForValue().increment(Trial.key("{m}"));
                    return own.exec();
                }
            }), List.of(1L, 2L)));
        }
        trial.check(kind, "RedisScript", () -> {
            RedisScript<Long> release = RedisScript.of(
                "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0 -- " + Trial.key(""), Long.class);
            values.set(Trial.key("s"), "mine");
            Trial.equal(template.execute(release, List.of(Trial.key("s")), "other"), 0L);
            Trial.equal(template.execute(release, List.of(Trial.key("s")), "mine"), 1L);
        });
        trial.check(kind, "RedisCacheManager", () -> {
            RedisCacheConfiguration defaults = RedisCacheConfiguration.defaultCacheConfig().entryTtl(Duration.ofSeconds(100)).prefixCacheNameWith(Trial.key(""));
            RedisCacheManager caches = RedisCacheManager.builder(factory).cacheDefaults(defaults).build();
            caches.afterPropertiesSet();
            Cache cache = caches.getCache("users");
            Trial.equal(cache.get("a", () -> "made"), "made");
            Trial.equal(cache.get("a", () -> "again"), "made");
            Trial.equal(cache.putIfAbsent("a", "other").get(), "made");
            // With Lettuce, put, evict and clear do not wait for the reply.
            cache.evict("a");
            Trial.until(() -> cache.get("a") == null);
            cache.put("b", "1");
            Trial.until(() -> cache.get("b") != null);
            cache.clear();
            Trial.until(() -> cache.get("b") == null);
        });
        trial.check(kind, "opsForHash", () -> template.opsForHash().put(Trial.key("h"), "field", "1"));
    }
}
