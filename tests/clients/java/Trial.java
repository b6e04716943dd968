import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * What the programs of this folder share: a line for each thing that was tried, and writing and reading while a node dies.
 */
final class Trial {
    /** What a check does; it may throw. */
    interface Work {
        void run() throws Exception;
    }

    /** A client at work: it writes one key, or reads it. */
    interface Put {
        void put(String key, String value) throws Exception;
    }

    interface Get {
        String get(String key) throws Exception;
    }

    record Way(String how, Put put, Get get) {}

    /** Longest wait for anything, and keys and pause of a client while a node dies. */
    static final int TIMEOUT_S = 15;

    private static final int KEYS = 40;
    private static final int PAUSE_MS = 5;
    private static final Map<String, Integer> OFFSETS = Map.of("any-key", 0, "cluster", 1_000, "memcached", 2_000);
    /** Keys of one run differ from those of all others. */
    private static final String RUN = UUID.randomUUID().toString().substring(0, 8);

    static String mode;
    static int nodes;
    static int victim;
    private static int base;
    private static int checks;
    private static final ExecutorService WORKERS = Executors.newCachedThreadPool();

    private final String client;
    private final String version;
    private volatile boolean ended;

    /** The version is that of the jar, by its name. */
    Trial(String client, Class<?> oneOfTheJar) {
        this.client = client;
        String jar = oneOfTheJar.getProtectionDomain().getCodeSource().getLocation().getPath();
        this.version = jar.replaceAll(".*-(\\d[\\d.]*\\d)(\\.RELEASE)?\\.jar", "$1");
    }

    static void begin(String[] arguments) {
        mode = arguments[0];
        base = Integer.parseInt(arguments[1]);
        nodes = Integer.parseInt(arguments[2]);
        victim = Integer.parseInt(arguments[3]);
    }

    static int port(String kind, int node) {
        return base + OFFSETS.get(kind) + node;
    }

    /** The ports of all nodes, from this one on. */
    static List<Integer> ports(String kind, int first) {
        return IntStream.range(0, nodes).map(n -> port(kind, (first + n) % nodes)).boxed().toList();
    }

    static String key(String name) {
        return RUN + ":" + checks + ":" + name;
    }

    static void equal(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError(found + " instead of " + wanted);
        }
    }

    static void until(Callable<Boolean> condition) throws Exception {
        long deadline = System.currentTimeMillis() + TIMEOUT_S * 1_000L;
        while (!condition.call()) {
            if (System.currentTimeMillis() > deadline) {
                throw new AssertionError("not within " + TIMEOUT_S + " s");
            }
            Thread.sleep(10);
        }
    }

    private static synchronized void line(Object... words) {
        System.out.println(Stream.of(words).map(word -> {
            String text = String.join(" ", String.valueOf(word).split("\\s+"));
            return text.substring(0, Math.min(text.length(), 400));
        }).collect(Collectors.joining("\t")));
        System.out.flush();
    }

    /** An error and those that caused it. */
    private static String text(Throwable error) {
        StringBuilder all = new StringBuilder();
        for (Throwable one = error; one != null && all.length() < 400; one = one.getCause()) {
            all.append(all.isEmpty() ? "" : ": ").append(one.getClass().getSimpleName()).append(": ").append(one.getMessage());
        }
        return all.toString();
    }

    void check(String kind, String what, Work work) {
        if (!mode.equals("work")) {
            return;
        }
        checks += 1;
        try {
            WORKERS.submit(() -> {
                work.run();
                return true;
            }).get(2 * TIMEOUT_S, TimeUnit.SECONDS);
            line("check", client, version, kind, what, "ok", "");
        } catch (java.util.concurrent.ExecutionException error) {
            line("check", client, version, kind, what, "failed", text(error.getCause()));
        } catch (Exception error) {
            line("check", client, version, kind, what, "failed", text(error));
        }
    }

    void ride(Way... ways) throws Exception {
        if (!mode.equals("ride")) {
            return;
        }
        line(Stream.concat(Stream.of("riders", client, version), Stream.of(ways).map(Way::how)).toArray());
        for (Way way : ways) {
            WORKERS.submit(() -> {
                rideOne(way);
                return true;
            });
        }
        System.in.readAllBytes();
        ended = true;
        WORKERS.shutdown();
        WORKERS.awaitTermination(TIMEOUT_S, TimeUnit.SECONDS);
    }

    private void rideOne(Way way) throws Exception {
        // What a key may hold, by its number. A key whose write failed is not used again: the write may still come.
        Map<Integer, String> holds = new HashMap<>();
        Map<Integer, String> names = new LinkedHashMap<>();
        for (int count = 0; !ended; count += 1) {
            Thread.sleep(PAUSE_MS);
            int number = count % KEYS;
            int now = count;
            String name = names.computeIfAbsent(number, n -> key((client + " " + way.how + " " + now).replace(' ', '-')));
            String known = holds.get(number);
            String[] found = new String[1];
            if (known != null && one(way.how, () -> found[0] = way.get.get(name)) && !known.equals(found[0])) {
                line("op", client, way.how, 0, 0, "wrong: " + name + " has " + found[0] + " instead of " + known);
            }
            if (one(way.how, () -> way.put.put(name, "v" + now))) {
                holds.put(number, "v" + count);
            } else {
                holds.remove(number);
                names.remove(number);
            }
        }
    }

    /** Prints what one operation did, and tells whether it worked. */
    private boolean one(String how, Work work) {
        long start = System.currentTimeMillis();
        String said = "ok";
        try {
            work.run();
        } catch (Exception | AssertionError error) {
            said = text(error);
        }
        line("op", client, how, start, System.currentTimeMillis(), said);
        return said.equals("ok");
    }
}
