package io.paritas.hadoop;

import io.paritas.files.FilesClient;
import java.io.IOException;
import java.lang.reflect.Field;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;

/**
 * HDFS whose reads no slow DataNode delays: `fs.hdfs.impl` = this class. Paths, jobs and servers stay as they are.
 *
 * <p>A new file gets its parity while it is written, however it is created. Whatever is unusual is left to Hadoop's own stream,
 * and so is everything if `fs.paritas.enabled` is false.
 */
public class ParitasHdfs extends DistributedFileSystem {
    /** Not public, but the same in all versions that we support. Hadoop's builder of new files uses it, and nothing else. */
    private static final Field DFS = NewFile.field(DistributedFileSystem.class, "dfs");

    private final PendingParity pending = new PendingParity();
    private Settings settings;
    /** Null if switched off. */
    private ParityStreams streams;
    private boolean verifies = true;

    @Override
    public void initialize(URI uri, Configuration conf) throws IOException {
        super.initialize(uri, conf);
        settings = new Settings(conf);
        streams = ParityStreams.of(settings, conf, statistics, pending);
        if (streams != null && streams.client.isConfigured() && DFS != null) {
            useOwnClient(uri, conf);
        }
    }

    /** Without it, first readers make the parity of new files, and workers find deleted ones. */
    private void useOwnClient(URI uri, Configuration conf) throws IOException {
        DFSClient own = getClient();
        ParitasDfsClient mine;
        try {
            mine = new ParitasDfsClient(uri, conf, statistics, streams);
        } catch (IOException e) {
            // Hadoop's own client could be made, and is enough.
            return;
        }
        try {
            DFS.set(this, mine);
            own.close();
        } catch (ReflectiveOperationException e) {
            mine.close();
        }
    }

    @Override
    public void setVerifyChecksum(boolean verifyChecksum) {
        super.setVerifyChecksum(verifyChecksum);
        verifies = verifyChecksum;
    }

    @Override
    public FSDataInputStream open(Path path, int bufferSize) throws IOException {
        FSDataInputStream own = super.open(path, bufferSize);
        if (streams == null || !verifies || !(own instanceof HdfsDataInputStream)) {
            return own;
        }
        return streams.reading(getClient(), (HdfsDataInputStream) own, fixRelativePart(path).toUri().getPath());
    }

    /** Parity of closed files is waited for, as long as steward and cache may take. */
    @Override
    public void close() throws IOException {
        try {
            if (settings != null) {
                // As Hadoop does, and before any wait: files that are open when the JVM ends must be completed in time.
                getClient().closeOutputStreams(false);
                pending.finish(settings.shared.timeoutMs);
                if (streams != null && settings.explains) {
                    System.err.println("paritas: " + streams.client.explanation());
                }
            }
        } finally {
            super.close();
        }
    }

    /** Null if switched off. */
    FilesClient client() {
        return streams == null ? null : streams.client;
    }

    Statistics statistics() {
        return statistics;
    }

    Settings settings() {
        return settings;
    }

    /** What the JVM's reads have done, as `name=value` pairs; empty if switched off. */
    public String counters() {
        FilesClient client = client();
        return client == null ? "" : client.counters + " declined_for_memory=" + client.pieces.declined();
    }

    /** The settings `fs.paritas.*`. */
    static final class Settings {
        private static final int SECRET_BYTES_MIN = 16;

        final boolean isEnabled;
        final int k;
        final long minFileBytes;
        /** The longest file whose parity is made while it is written. */
        final long writeFileBytesMax;
        /** What a worker reads in a second to make parity ahead of readers. */
        final long prefetchBytesPerSecond;
        final boolean isWholeFile;
        /** Whether the user is told at the end what was gained, or why nothing was. */
        final boolean explains;
        final boolean isShortCircuit;
        final List<String> excluded = new ArrayList<>();
        final FilesClient.Settings shared = new FilesClient.Settings();

        Settings(Configuration conf) {
            isEnabled = conf.getBoolean("fs.paritas.enabled", true);
            k = number(conf, "fs.paritas.k", 4);
            if (k < 1 || k > 64) {
                throw new IllegalArgumentException("fs.paritas.k is " + k + "; 1 to 64 is possible");
            }
            minFileBytes = bytes(conf, "fs.paritas.min.file", 8 << 20);
            writeFileBytesMax = bytes(conf, "fs.paritas.write.file.max", 1L << 30);
            prefetchBytesPerSecond = bytes(conf, "fs.paritas.prefetch.rate", 32L << 20);
            if (prefetchBytesPerSecond < 1) {
                throw new IllegalArgumentException(
                        "fs.paritas.prefetch.rate is " + prefetchBytesPerSecond + "; at least 1 byte a second is needed");
            }
            explains = parsed(conf, "fs.paritas.explain", "true or false", name -> conf.getBoolean(name, false));
            String policy = conf.get("fs.paritas.read.policy", "adaptive");
            isWholeFile = policy.equals("whole-file");
            if (!isWholeFile && !policy.equals("adaptive")) {
                throw new IllegalArgumentException(
                        "fs.paritas.read.policy is '" + policy + "'; 'adaptive' and 'whole-file' are possible");
            }
            String parity = conf.get("fs.paritas.read.parity", "when-behind");
            shared.isParityAtOnce = parity.equals("at-once");
            if (!shared.isParityAtOnce && !parity.equals("when-behind")) {
                throw new IllegalArgumentException(
                        "fs.paritas.read.parity is '" + parity + "'; 'when-behind' and 'at-once' are possible");
            }
            isShortCircuit = conf.getBoolean("dfs.client.read.shortcircuit", false);
            for (String path : conf.getTrimmedStrings("fs.paritas.exclude", "/hbase")) {
                excluded.add(path.endsWith("/") ? path.substring(0, path.length() - 1) : path);
            }
            shared.steward = conf.getTrimmed("fs.paritas.steward", "");
            shared.cache = conf.getTrimmed("fs.paritas.cache", "");
            shared.stewardPassword = isEnabled ? Passwords.of(conf, FilesClient.PASSWORD_OF_STEWARD) : "";
            shared.cachePassword = isEnabled ? Passwords.of(conf, FilesClient.PASSWORD_OF_CACHE) : "";
            String secret = isEnabled ? Passwords.find(conf, FilesClient.SECRET) : "";
            if (secret == null) {
                // What cannot be checked as was asked for is not used.
                shared.steward = "";
                shared.cache = "";
            } else if (!secret.isEmpty() && secret.length() < SECRET_BYTES_MIN) {
                throw new IllegalArgumentException(FilesClient.SECRET + " has " + secret.length() + " bytes; at least "
                        + SECRET_BYTES_MIN + " are needed, such as `head -c 24 /dev/urandom | base64` gives");
            } else {
                shared.secret = secret.getBytes(StandardCharsets.UTF_8);
            }
            shared.namespace = conf.getTrimmed("fs.paritas.namespace", "hdfs");
            long subBytes = bytes(conf, "fs.paritas.subblock", 1 << 20);
            if (subBytes < 4096 || subBytes > 16 << 20) {
                throw new IllegalArgumentException("fs.paritas.subblock is " + subBytes + "; 4 KiB to 16 MiB is possible");
            }
            shared.subBytes = (int) subBytes;
            // A JVM with little heap must not lose it to reads.
            long most = Runtime.getRuntime().maxMemory() / 2;
            shared.readMemoryBytes = Math.min(bytes(conf, "fs.paritas.read.memory", 800L << 20), most);
            shared.hedgeShare =
                    parsed(conf, "fs.paritas.hedge.budget", "a number such as 0.1", name -> conf.getDouble(name, 0.1));
            if (!(shared.hedgeShare >= 0 && shared.hedgeShare <= 10)) {
                throw new IllegalArgumentException(
                        "fs.paritas.hedge.budget is " + shared.hedgeShare + "; 0 to 10 is possible, 0.1 is usual");
            }
            shared.timeoutMs = number(conf, "fs.paritas.timeout.ms", 2000);
            if (shared.timeoutMs < 1) {
                throw new IllegalArgumentException("fs.paritas.timeout.ms is " + shared.timeoutMs + "; at least 1 is needed");
            }
        }

        private static long bytes(Configuration conf, String setting, long usual) {
            String form = "a number of bytes, such as 4096, 800m or 1g (in the steward's file 800mb, here not)";
            return parsed(conf, setting, form, name -> conf.getLongBytes(name, usual));
        }

        private static int number(Configuration conf, String setting, int usual) {
            return parsed(conf, setting, "a whole number", name -> conf.getInt(name, usual));
        }

        /** Hadoop's own error does not say which setting is wrong. */
        private static <T> T parsed(Configuration conf, String setting, String form, Function<String, T> parse) {
            try {
                return parse.apply(setting);
            } catch (RuntimeException e) {
                throw new IllegalArgumentException(setting + " is '" + conf.get(setting) + "'; it must be " + form, e);
            }
        }

        boolean wants(String path, long length) {
            if (length < minFileBytes || path.startsWith("/.reserved/") || path.contains("/.snapshot/")) {
                return false;
            }
            for (String prefix : excluded) {
                if (path.equals(prefix) || path.startsWith(prefix + "/")) {
                    return false;
                }
            }
            return true;
        }
    }
}
