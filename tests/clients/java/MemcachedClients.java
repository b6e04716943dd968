import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import net.rubyeye.xmemcached.GetsResponse;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.DefaultConnectionFactory;
import net.spy.memcached.MemcachedClient;

/** xmemcached and spymemcached, both with the text protocol, with one server and with all. */
final class MemcachedClients {
    public static void main(String[] arguments) throws Exception {
        Trial.begin(arguments);
        Trial first = new Trial("xmemcached", XMemcachedClientBuilder.class);
        Trial second = new Trial("spymemcached", MemcachedClient.class);
        if (Trial.mode.equals("work")) {
            xmemcached(first, "one node", x(List.of(Trial.port("memcached", 0))));
            xmemcached(first, "all nodes", x(Trial.ports("memcached", 0)));
            spymemcached(second, "one node", spy(List.of(Trial.port("memcached", 0))));
            spymemcached(second, "all nodes", spy(Trial.ports("memcached", 0)));
        } else {
            first.ride(
                way("memcached port, another node dies", x(List.of(Trial.port("memcached", 0)))),
                way("memcached port, its own node dies", x(List.of(Trial.port("memcached", Trial.victim)))),
                way("memcached ports of all nodes", x(Trial.ports("memcached", 0))));
        }
        System.exit(0);
    }

    private static List<InetSocketAddress> servers(List<Integer> ports) {
        return ports.stream().map(port -> new InetSocketAddress("127.0.0.1", port)).toList();
    }

    private static net.rubyeye.xmemcached.MemcachedClient x(List<Integer> ports) throws Exception {
        return new XMemcachedClientBuilder(servers(ports)).build();
    }

    private static MemcachedClient spy(List<Integer> ports) throws Exception {
        return new MemcachedClient(new DefaultConnectionFactory(), servers(ports));
    }

    private static Trial.Way way(String how, net.rubyeye.xmemcached.MemcachedClient client) {
        return new Trial.Way(how, (key, value) -> Trial.equal(client.set(key, 0, value), true), client::get);
    }

    private static void xmemcached(Trial trial, String name, net.rubyeye.xmemcached.MemcachedClient c) {
        trial.check("memcached", name + ": every command", () -> {
            Trial.equal(c.set(Trial.key("a"), 0, "1"), true);
            Trial.equal(c.add(Trial.key("a"), 0, "2"), false);
            Trial.equal(c.replace(Trial.key("a"), 0, "3"), true);
            Trial.equal(c.append(Trial.key("a"), "y"), true);
            Trial.equal(c.prepend(Trial.key("a"), "x"), true);
            GetsResponse<String> got = c.gets(Trial.key("a"));
            Trial.equal(got.getValue(), "x3y");
            Trial.equal(c.cas(Trial.key("a"), 0, "new", got.getCas()), true);
            Trial.equal(c.cas(Trial.key("a"), 0, "newer", got.getCas()), false);
            Trial.equal(List.of(c.incr(Trial.key("n"), 1, 5), c.incr(Trial.key("n"), 7), c.decr(Trial.key("n"), 2)), List.of(5L, 12L, 10L));
            Map<String, String> wanted = new HashMap<>();
            for (int n = 0; n < 50; n += 1) {
                wanted.put(Trial.key("m" + n), "" + n);
                c.set(Trial.key("m" + n), 0, "" + n);
            }
            List<String> names = new ArrayList<>(wanted.keySet());
            names.add(Trial.key("no"));
            Trial.equal(c.get(names), wanted);
            Trial.equal(c.touch(Trial.key("a"), 1), true);
            Trial.equal(c.delete(Trial.key("n")), true);
            Trial.until(() -> c.get(Trial.key("a")) == null);
        });
    }

    private static void spymemcached(Trial trial, String name, MemcachedClient c) {
        trial.check("memcached", name + ": every command", () -> {
            Trial.equal(c.set(Trial.key("a"), 0, "1").get(), true);
            Trial.equal(c.add(Trial.key("a"), 0, "2").get(), false);
            Trial.equal(c.replace(Trial.key("a"), 0, "3").get(), true);
            CASValue<Object> got = c.gets(Trial.key("a"));
            Trial.equal(got.getValue(), "3");
            Trial.equal(c.cas(Trial.key("a"), got.getCas(), "new"), CASResponse.OK);
            Trial.equal(c.cas(Trial.key("a"), got.getCas(), "newer"), CASResponse.EXISTS);
            Trial.equal(List.of(c.incr(Trial.key("n"), 1, 5), c.incr(Trial.key("n"), 7), c.decr(Trial.key("n"), 2)), List.of(5L, 12L, 10L));
            Map<String, Object> wanted = new HashMap<>();
            for (int n = 0; n < 50; n += 1) {
                wanted.put(Trial.key("m" + n), "" + n);
                c.set(Trial.key("m" + n), 0, "" + n).get();
            }
            Trial.equal(c.getBulk(wanted.keySet()), wanted);
            Trial.equal(c.touch(Trial.key("a"), 1).get(5, TimeUnit.SECONDS), true);
            Trial.equal(c.delete(Trial.key("n")).get(), true);
            Trial.until(() -> c.get(Trial.key("a")) == null);
        });
    }
}
