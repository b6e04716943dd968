package io.paritas.files;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import javax.management.JMException;
import javax.management.ObjectName;

/** What all open files of a JVM share: connections, memory, threads, counters. One for each set of settings. */
public final class FilesClient {
    /** The settings that decide which client a file system uses. */
    public static final class Settings {
        public String steward = "";
        public String cache = "";
        public String namespace = "hdfs";
        public int subBytes = 1 << 20;
        public long readMemoryBytes;
        public int timeoutMs = 2000;
        /** What hedges may read, as a share of what readers read by position; 0: no hedges. */
        public double hedgeShare = 0.1;
        /** Whether all parity is asked for with the data, as in the paper, and not only once a lane is behind. */
        public boolean isParityAtOnce;
        /** Empty: none. */
        public String stewardPassword = "";
        public String cachePassword = "";
        /** What all clients of a mount share, and nobody else who can write to the cache. Empty: none. */
        public byte[] secret = {};

        private String key() {
            return steward + ' ' + cache + ' ' + namespace + ' ' + subBytes + ' ' + readMemoryBytes + ' ' + timeoutMs
                    + ' ' + hedgeShare + ' ' + isParityAtOnce + ' ' + stewardPassword.length() + ' ' + stewardPassword
                    + cachePassword.length() + ' ' + cachePassword + Arrays.toString(secret);
        }
    }

    /** Parity that this JVM reads or writes, which the steward is told every ten seconds. */
    public interface Pinned {
        /** The steward does not know of it any more: it must not be used, nor committed. */
        void revoke();
    }

    /** What JMX shows. */
    public interface CountersMXBean {
        String getCounters();
    }

    /** Numbers since the JVM began. */
    public static final class Counters implements CountersMXBean {
        @Override
        public String getCounters() {
            return toString();
        }

        public final AtomicLong stripes = new AtomicLong();
        public final AtomicLong wholeStripes = new AtomicLong();
        /** Read from DataNodes by lanes, whether anybody needed it or not. */
        public final AtomicLong dataBytes = new AtomicLong();
        /** Read from the parity cache. */
        public final AtomicLong parityBytes = new AtomicLong();
        /** Files that were opened with parity, that were to get it, that were to be read without, and whose opens failed. */
        public final AtomicLong opensCached = new AtomicLong();
        public final AtomicLong opensToCache = new AtomicLong();
        public final AtomicLong opensWithout = new AtomicLong();
        public final AtomicLong opensFailed = new AtomicLong();
        /** Given to readers from stripes. */
        public final AtomicLong deliveredBytes = new AtomicLong();
        public final AtomicLong decodedBytes = new AtomicLong();
        public final AtomicLong paritySubblocksWritten = new AtomicLong();
        public final AtomicLong commits = new AtomicLong();
        /** Files whose parity was made while they were written, and is committed. */
        public final AtomicLong writesCommitted = new AtomicLong();
        /** Such files without: too long, not closed, changed meanwhile; or steward or cache were away or full. */
        public final AtomicLong writesDropped = new AtomicLong();
        /** Of these, for want of memory. */
        public final AtomicLong writesDeclined = new AtomicLong();
        /** Files of which the steward was told that they are gone. */
        public final AtomicLong deletesTold = new AtomicLong();
        public final AtomicLong lostReads = new AtomicLong();
        public final AtomicLong damagedParity = new AtomicLong();
        /** Decoded subblocks that HDFS's own checksums refused. */
        public final AtomicLong wrongDecodes = new AtomicLong();
        /** Decoded bytes that could not be compared with HDFS's own checksums: the check of the parity alone is for them. */
        public final AtomicLong uncheckedBytes = new AtomicLong();
        public final AtomicLong missingParity = new AtomicLong();
        public final AtomicLong hedges = new AtomicLong();
        public final AtomicLong hedgeWins = new AtomicLong();
        public final AtomicLong hedgeBytes = new AtomicLong();
        public final AtomicLong hedgesDeclined = new AtomicLong();

        @Override
        public String toString() {
            return "opens_cached=" + opensCached + " opens_to_cache=" + opensToCache
                    + " opens_without=" + opensWithout + " opens_failed=" + opensFailed + " stripes=" + stripes
                    + " whole_stripes=" + wholeStripes + " data_bytes=" + dataBytes + " parity_bytes=" + parityBytes
                    + " delivered_bytes=" + deliveredBytes + " decoded_bytes=" + decodedBytes
                    + " parity_subblocks_written=" + paritySubblocksWritten + " commits=" + commits
                    + " writes_committed=" + writesCommitted + " writes_dropped=" + writesDropped
                    + " writes_declined=" + writesDeclined + " deletes_told=" + deletesTold
                    + " lost_reads=" + lostReads + " damaged_parity=" + damagedParity
                    + " wrong_decodes=" + wrongDecodes + " unchecked_bytes=" + uncheckedBytes
                    + " missing_parity=" + missingParity + " hedges=" + hedges + " hedge_wins=" + hedgeWins
                    + " hedge_bytes=" + hedgeBytes + " hedges_declined=" + hedgesDeclined;
        }
    }

    /** Where users set passwords, or the same with `.file`. */
    public static final String PASSWORD_OF_STEWARD = "fs.paritas.steward.password";
    public static final String PASSWORD_OF_CACHE = "fs.paritas.cache.password";
    public static final String SECRET = "fs.paritas.secret";

    private static final Map<String, FilesClient> CLIENTS = new ConcurrentHashMap<>();
    private static final int LANE_THREADS_MAX = 512;
    private static final int WRITER_THREADS = 2;
    /** Parity subblocks that wait to be encoded. More are dropped, and the file's parity with them. */
    private static final int WRITES_WAITING_MAX = 4096;
    /** Closed files whose parity waits to be committed. That of more is dropped. */
    private static final int COMMITS_WAITING_MAX = 1024;
    private static final long RENEW_MS = 10_000;
    private static final long REPORT_MS = 1_000;
    /** A thread that has had nothing to report for so long ends. */
    private static final long IDLE_NS = 30_000_000_000L;
    /** A request is late when it takes this many times what the usual one takes, and that long at least. */
    private static final int LATE_MEDIANS = 3;
    private static final long LATE_NS_MIN = 30_000_000;
    /** Credit is asked for so many reads at once. */
    private static final int CREDIT_READS = 4;
    private static final long HEDGE_BYTES_MAX = 64 << 20;
    /** After that long, nodes that the steward called slow are asked as others. */
    private static final long SLOW_NS = 60_000_000_000L;

    /** JMX has the counters after that long. */
    private static final long SHOWN_AFTER_NS = 5_000_000_000L;
    /** A steward that has granted no credit is not asked again for that long. */
    private static final long REFUSED_NS = 500_000_000L;

    public final Settings settings;
    public final Counters counters = new Counters();
    public final Pieces pieces;
    public final StewardClient steward;
    public final Latencies latencies = new Latencies();
    public final ByteBudget hedgeBudget;
    private final AtomicBoolean isAskingForCredit = new AtomicBoolean();
    private volatile long refusedAtNs = System.nanoTime() - REFUSED_NS;
    private volatile Set<String> slow = Collections.emptySet();
    private volatile long slowAtNs;
    private final RespPool cache;
    private final ThreadPoolExecutor lanes;
    private final ThreadPoolExecutor writers;
    private final ThreadPoolExecutor committer;
    private final Map<Long, Pinned> pinned = new ConcurrentHashMap<>();
    private final List<StewardClient.Sample> samples = new ArrayList<>();
    /** Whether there is a thread that reports. Guarded by `samples`. */
    private boolean isReporting;
    /** Whether JMX has the counters. Of that thread. */
    private volatile boolean areShown;

    private FilesClient(Settings settings) {
        this.settings = settings;
        pieces = new Pieces(settings.subBytes, settings.readMemoryBytes);
        steward = new StewardClient(stewards(settings), settings.namespace);
        hedgeBudget = new ByteBudget(settings.hedgeShare, HEDGE_BYTES_MAX);
        cache = new RespPool(
                settings.cache, settings.timeoutMs, new Password("parity cache", PASSWORD_OF_CACHE, settings.cachePassword),
                Troubles.ofCache(), settings.namespace);
        Troubles.onSettings(settings);
        lanes = new ThreadPoolExecutor(
                0, LANE_THREADS_MAX, 10, TimeUnit.SECONDS, new SynchronousQueue<>(), named("paritas-lane"));
        writers = new ThreadPoolExecutor(
                WRITER_THREADS, WRITER_THREADS, 10, TimeUnit.SECONDS, new ArrayBlockingQueue<>(WRITES_WAITING_MAX),
                named("paritas-parity"));
        writers.allowCoreThreadTimeOut(true);
        committer = new ThreadPoolExecutor(
                1, 1, 10, TimeUnit.SECONDS, new ArrayBlockingQueue<>(COMMITS_WAITING_MAX), named("paritas-commit"));
        committer.allowCoreThreadTimeOut(true);
        report(false);
    }

    private static RespPool stewards(Settings settings) {
        return new RespPool(
                settings.steward, settings.timeoutMs, new Password("steward", PASSWORD_OF_STEWARD, settings.stewardPassword),
                Troubles.ofSteward(), settings.namespace);
    }

    /** The JVM's client for these settings. */
    public static FilesClient of(Settings settings) {
        return CLIENTS.computeIfAbsent(settings.key(), key -> new FilesClient(settings));
    }

    public Executor lanes() {
        return lanes;
    }

    /** Whether a steward and a cache are configured: without them, reads are parallel at best. */
    public boolean isConfigured() {
        return steward.isConfigured() && !cache.isEmpty();
    }

    /** Whether reads by position may be hedged. */
    public boolean hedges() {
        return isConfigured() && settings.hedgeShare > 0;
    }

    /** How old a request for so many bytes is when its node counts as late. */
    public long lateNs(long bytes) {
        long medianNs = latencies.medianNs(bytes);
        return medianNs == 0 ? Long.MAX_VALUE : Math.max(LATE_MEDIANS * medianNs, LATE_NS_MIN);
    }

    /**
     * Whether DataNodes may be asked for so many bytes beyond what readers want, because this node is late. `must`: it has failed.
     * Never waits: what the steward grants is there when the reader looks again.
     */
    public boolean mayRead(long bytes, String node, boolean must) {
        boolean may = must || hedges() && hedgeBudget.take(bytes);
        if (may) {
            counters.hedges.incrementAndGet();
            counters.hedgeBytes.addAndGet(bytes);
        } else if (hedges()) {
            counters.hedgesDeclined.incrementAndGet();
            wantCredit(Math.min(CREDIT_READS * bytes, HEDGE_BYTES_MAX), node);
        }
        return may;
    }

    /** The same for bytes that a reader will want if it goes on. `node` is the one that is late; null: the steward knows none. */
    public boolean mayReadAhead(long bytes, String node) {
        boolean may = hedges() && hedgeBudget.take(bytes);
        if (!may && hedges()) {
            wantCredit(Math.min(CREDIT_READS * bytes, HEDGE_BYTES_MAX), node);
        }
        return may;
    }

    /** What the steward said last. */
    void onSlow(Set<String> nodes) {
        slow = nodes;
        slowAtNs = System.nanoTime();
    }

    /** Whether the parity of a stripe with a data unit at this node is asked for ahead of its data. */
    public boolean wantsParityFor(String node) {
        return settings.isParityAtOnce || isSlow(node);
    }

    public boolean isSlow(String node) {
        return slow.contains(node) && System.nanoTime() - slowAtNs < SLOW_NS;
    }

    /** A reader wanted a stripe of so many bytes, for which there is no memory (or no thread). */
    public void onStripeDeclined(long bytesNeeded) {
        Troubles.onMemory(bytesNeeded, settings.readMemoryBytes);
    }

    /** What the JVM's reads have gained, or why nothing, in a sentence for the user. */
    public String explanation() {
        long gained = counters.decodedBytes.get();
        if (!isConfigured()) {
            return "no parity was used: fs.paritas.steward and fs.paritas.cache are not both set";
        }
        if (gained > 0 || counters.hedgeWins.get() > 0) {
            return gained + " bytes were decoded instead of waited for, and " + counters.hedgeWins
                    + " reads by position came from the parity first";
        }
        if (pieces.declined() > 0) {
            return "nothing was gained: there was no memory for a read: raise fs.paritas.read.memory and the heap (-Xmx)";
        }
        if (counters.deliveredBytes.get() == 0) {
            return "nothing was gained: Hadoop's own stream has read all: see fs.paritas.min.file and fs.paritas.exclude";
        }
        if (counters.opensFailed.get() > 0) {
            return "nothing was gained: the steward did not answer, or not as expected (see the log): see fs.paritas.steward";
        }
        if (counters.damagedParity.get() + counters.missingParity.get() > 0) {
            return "nothing was gained: parity was missing or refused, and is made again by a later read";
        }
        if (counters.opensToCache.get() > 0) {
            boolean isMade = counters.commits.get() > 0;
            return "nothing was gained: this read "
                    + (isMade ? "has made the parity" : "was to make the parity, and has not finished it")
                    + ". A later read can use it";
        }
        if (counters.opensWithout.get() > 0) {
            return "nothing was gained: the steward gave no parity. `declined` of `paritas files status --json` says why";
        }
        return "nothing was gained: the parity was there, and no DataNode was late";
    }

    /** Tells the steward that a file is gone, in another thread. The answer is when it is told, or cannot be; null: never. */
    public Future<?> tellDeleted(long id) {
        FutureTask<?> telling = new FutureTask<>(() -> {
            try {
                steward.deleted(id);
                counters.deletesTold.incrementAndGet();
            } catch (IOException e) {
                // A worker finds out.
            }
            return null;
        });
        return write(telling) ? telling : null;
    }

    /** The budget did not allow a hedge: asks the steward for more, if it calls the node slow. Waits for nothing. */
    private void wantCredit(long bytes, String node) {
        boolean isSoon = node == null || System.nanoTime() - refusedAtNs < REFUSED_NS;
        if (isSoon || !isAskingForCredit.compareAndSet(false, true)) {
            return;
        }
        boolean isAsked = write(() -> {
            long granted = 0;
            try {
                granted = steward.credit(bytes, node);
            } catch (IOException e) {
                // It is away, or old: what readers read fills the budget too.
            }
            if (granted > 0) {
                hedgeBudget.onGrant(granted);
            } else {
                refusedAtNs = System.nanoTime();
            }
            isAskingForCredit.set(false);
        });
        if (!isAsked) {
            isAskingForCredit.set(false);
        }
    }

    /** Gets a value in two pieces. Returns the payload's length, -1 if it is absent. */
    int get(String key, byte[] header, byte[] payload) throws IOException {
        return cache.use(spread(key), payload.length, connection -> connection.get(key, header, payload));
    }

    void set(String key, byte[] payload, int length, int seconds) throws IOException {
        byte[] header = ParityValue.header(settings.secret, key, payload, length);
        cache.use(spread(key), length, connection -> {
            connection.set(key, header, payload, length, seconds);
            return null;
        });
    }

    /** Says of which version of the file the parity under the token is. */
    void setVersion(long id, String token, long version, int seconds) throws IOException {
        byte[] payload = ParityValue.version(version);
        set(ParityValue.versionKey(settings.namespace, id, token), payload, payload.length, seconds);
    }

    private static int spread(String key) {
        return key.hashCode() & 0xFFFF;
    }

    /** False if too much waits already. */
    boolean write(Runnable work) {
        return execute(writers, work);
    }

    /** The same for work that asks the store about a file that was written. */
    boolean commit(Runnable work) {
        return execute(committer, work);
    }

    private static boolean execute(Executor threads, Runnable work) {
        try {
            threads.execute(work);
            return true;
        } catch (RejectedExecutionException | OutOfMemoryError e) {
            // The system may have no thread left, of which Java says that there is no memory.
            return false;
        }
    }

    void pin(long pin, Pinned file) {
        pinned.put(pin, file);
        report(false);
    }

    void unpin(long pin) {
        pinned.remove(pin);
    }

    /** A sample for the steward. Dropped if too many wait, as they do while it is away. */
    public void sample(StewardClient.Sample sample) {
        synchronized (samples) {
            if (samples.size() < StewardClient.SAMPLES_MAX) {
                samples.add(sample);
            }
        }
        report(false);
    }

    private void showCounters() {
        try {
            String name = "io.paritas:type=Files,id=" + Integer.toHexString(System.identityHashCode(this));
            ManagementFactory.getPlatformMBeanServer().registerMBean(counters, new ObjectName(name));
        } catch (JMException | RuntimeException e) {
            // Reads do not need it.
        }
    }

    /** Sees that there is a thread that reports; `isDone`: or that this one, which has nothing to do, may end. Whether it may. */
    private boolean report(boolean isDone) {
        synchronized (samples) {
            if (isDone) {
                isReporting = !samples.isEmpty() || !pinned.isEmpty();
                return !isReporting;
            }
            if (!isReporting) {
                Thread reporter = new Thread(this::reportWhileNeeded, "paritas-report");
                reporter.setDaemon(true);
                try {
                    reporter.start();
                    isReporting = true;
                } catch (OutOfMemoryError e) {
                    // No thread is left. The next sample tries again.
                }
            }
            return false;
        }
    }

    private void reportWhileNeeded() {
        long beginNs = System.nanoTime();
        long renewNs = beginNs;
        long usedNs = beginNs;
        while (true) {
            try {
                Thread.sleep(REPORT_MS);
            } catch (InterruptedException e) {
                synchronized (samples) {
                    isReporting = false;
                }
                return;
            }
            long nowNs = System.nanoTime();
            // It costs a fifth of a second of CPU time, for which nobody looks in a JVM that soon ends.
            if (!areShown && nowNs - beginNs >= SHOWN_AFTER_NS) {
                areShown = true;
                showCounters();
            }
            List<StewardClient.Sample> report;
            synchronized (samples) {
                report = new ArrayList<>(samples);
                samples.clear();
            }
            if (!report.isEmpty() || !pinned.isEmpty()) {
                usedNs = nowNs;
            } else if (nowNs - usedNs >= IDLE_NS && report(true)) {
                return;
            }
            try {
                if (!report.isEmpty() && steward.isConfigured()) {
                    steward.report(report);
                }
                if (nowNs - renewNs >= TimeUnit.MILLISECONDS.toNanos(RENEW_MS)) {
                    renewNs = nowNs;
                    renew();
                }
            } catch (IOException | RuntimeException e) {
                // The steward is away. Old samples are of no use to it when it is back.
            }
        }
    }

    private void renew() throws IOException {
        if (pinned.isEmpty()) {
            return;
        }
        for (long unknown : steward.renew(new ArrayList<>(pinned.keySet()))) {
            Pinned file = pinned.remove(unknown);
            if (file != null) {
                file.revoke();
            }
        }
    }

    private static ThreadFactory named(String name) {
        AtomicInteger number = new AtomicInteger();
        return work -> {
            Thread thread = new Thread(work, name + '-' + number.incrementAndGet());
            thread.setDaemon(true);
            return thread;
        };
    }
}
