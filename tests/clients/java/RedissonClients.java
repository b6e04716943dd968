import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.api.RScript;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Redisson. Its locks need hashes and Pub/Sub; its buckets and counters need neither. */
final class RedissonClients {
    public static void main(String[] arguments) {
        Trial.begin(arguments);
        Trial trial = new Trial("Redisson", Redisson.class);
        Config plain = new Config();
        plain.useSingleServer().setAddress("redis://127.0.0.1:" + Trial.port("any-key", 0)).setConnectionMinimumIdleSize(1).setRetryAttempts(1);
        works(trial, "any-key", plain);
        Config cluster = new Config();
        cluster.useClusterServers().addNodeAddress(Trial.ports("cluster", 0).stream().map(port -> "redis://127.0.0.1:" + port).toArray(String[]::new))
            .setMasterConnectionMinimumIdleSize(1).setRetryAttempts(1);
        works(trial, "cluster", cluster);
        System.exit(0);
    }

    private static void works(Trial trial, String kind, Config config) {
        RedissonClient[] made = new RedissonClient[1];
        trial.check(kind, "connects", () -> made[0] = Redisson.create(config.setCodec(StringCodec.INSTANCE)));
        RedissonClient r = made[0];
        if (r == null) {
            return;
        }
        trial.check(kind, "RBucket, RAtomicLong", () -> {
            r.getBucket(Trial.key("a")).set("1", Duration.ofSeconds(100));
            Trial.equal(r.getBucket(Trial.key("a")).get(), "1");
            Trial.equal(r.getBucket(Trial.key("a")).setIfAbsent("2"), false);
            Trial.equal(r.getBucket(Trial.key("a")).compareAndSet("1", "3"), true);
            Trial.equal(r.getAtomicLong(Trial.key("n")).addAndGet(5), 5L);
        });
        trial.check(kind, "RScript", () -> Trial.equal(
            r.getScript().eval(RScript.Mode.READ_WRITE, "return redis.call('incr', KEYS[1])", RScript.ReturnType.LONG, java.util.List.of(Trial.key("{s}"))), 1L));
        trial.check(kind, "RLock", () -> {
            RLock lock = r.getLock(Trial.key("lock"));
            Trial.equal(lock.tryLock(1, 5, TimeUnit.SECONDS), true);
            lock.unlock();
        });
        trial.check(kind, "RMap", () -> r.getMap(Trial.key("map")).put("a", "1"));
        trial.check(kind, "RTopic", () -> r.getTopic(Trial.key("topic")).publish("hello"));
        r.shutdown();
    }
}
