package io.paritas.hadoop;

import io.paritas.files.FileParity;
import io.paritas.files.FilesClient;
import io.paritas.files.WrittenParity;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.URI;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Options.ChecksumOpt;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DFSInputStream;
import org.apache.hadoop.hdfs.DFSOutputStream;
import org.apache.hadoop.hdfs.DFSStripedOutputStream;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;
import org.apache.hadoop.util.Progressable;

/**
 * HDFS whose reads no slow DataNode delays: `fs.hdfs.impl` = this class. Paths, jobs and servers stay as they are.
 *
 * <p>A new contiguous file gets its parity while it is written. Whatever is unusual is left to Hadoop's own stream, and so is everything if `fs.paritas.enabled` is false.
 */
public class ParitasHdfs extends DistributedFileSystem {
    private Settings settings;
    private FilesClient client;
    private boolean verifies = true;
    /** Files that are being written, or whose parity is not yet committed. */
    private final Set<WrittenParity> writing = Collections.newSetFromMap(new ConcurrentHashMap<>());
    /** Files that are read, or whose parity is not yet committed. */
    private final Set<FileParity> reading = Collections.newSetFromMap(new ConcurrentHashMap<>());

    @Override
    public void initialize(URI uri, Configuration conf) throws IOException {
        super.initialize(uri, conf);
        settings = new Settings(conf);
        client = settings.isEnabled ? FilesClient.of(settings.shared) : null;
    }

    @Override
    public void setVerifyChecksum(boolean verifyChecksum) {
        super.setVerifyChecksum(verifyChecksum);
        verifies = verifyChecksum;
    }

    @Override
    public FSDataInputStream open(Path path, int bufferSize) throws IOException {
        FSDataInputStream own = super.open(path, bufferSize);
        if (client == null || !verifies || !(own instanceof HdfsDataInputStream)) {
            return own;
        }
        HdfsDataInputStream hdfs = (HdfsDataInputStream) own;
        InputStream wrapped = hdfs.getWrappedStream();
        String name = fixRelativePart(path).toUri().getPath();
        if (!(wrapped instanceof DFSInputStream)
                || ((DFSInputStream) wrapped).getFileEncryptionInfo() != null
                || !settings.wants(name, hdfs.getVisibleLength())) {
            return own;
        }
        DFSInputStream store = (DFSInputStream) wrapped;
        return new ParitasDataInputStream(store, new ParitasStream(store, getClient(), getConf(), name, settings, client, this::onParity));
    }

    private void onParity(FileParity parity) {
        reading.removeIf(FileParity::isOver);
        reading.add(parity);
    }

    @Override
    public FSDataOutputStream create(
            Path path, FsPermission permission, EnumSet<CreateFlag> flags, int bufferSize, short replication, long blockSize,
            Progressable progress, ChecksumOpt checksum) throws IOException {
        FSDataOutputStream own =
                super.create(path, permission, flags, bufferSize, replication, blockSize, progress, checksum);
        return flags.contains(CreateFlag.APPEND) ? own : withParity(path, own, blockSize);
    }

    @Override
    public HdfsDataOutputStream create(
            Path path, FsPermission permission, boolean overwrite, int bufferSize, short replication, long blockSize,
            Progressable progress, InetSocketAddress[] favoredNodes) throws IOException {
        HdfsDataOutputStream own = super.create(
                path, permission, overwrite, bufferSize, replication, blockSize, progress, favoredNodes);
        return (HdfsDataOutputStream) withParity(path, own, blockSize);
    }

    @Override
    public FSDataOutputStream createNonRecursive(
            Path path, FsPermission permission, EnumSet<CreateFlag> flags, int bufferSize, short replication, long blockSize,
            Progressable progress) throws IOException {
        FSDataOutputStream own =
                super.createNonRecursive(path, permission, flags, bufferSize, replication, blockSize, progress);
        return flags.contains(CreateFlag.APPEND) ? own : withParity(path, own, blockSize);
    }

    /** The same new file as a stream that makes parity too; or as it is, if it is unusual. */
    private FSDataOutputStream withParity(Path path, FSDataOutputStream own, long blockSize) throws IOException {
        boolean isWanted = client != null && client.isConfigured() && settings.writeFileBytesMax > 0
                && blockSize >= settings.shared.subBytes
                && ParitasDataOutputStream.isPossible()
                && settings.wants(fixRelativePart(path).toUri().getPath(), settings.minFileBytes);
        if (!isWanted || !(own instanceof HdfsDataOutputStream)) {
            return own;
        }
        java.io.OutputStream wrapped = own.getWrappedStream();
        if (!(wrapped instanceof DFSOutputStream) || wrapped instanceof DFSStripedOutputStream) {
            return own;
        }
        DFSOutputStream store = (DFSOutputStream) wrapped;
        WrittenParity parity = new WrittenParity(
                client, store.getFileId(), settings.k, blockSize, settings.minFileBytes, settings.writeFileBytesMax);
        writing.removeIf(WrittenParity::isOver);
        writing.add(parity);
        return new ParitasDataOutputStream(store, statistics, getClient(), settings, blockSize, parity);
    }

    /** Parity of closed files is waited for, as long as steward and cache may take. */
    @Override
    public void close() throws IOException {
        try {
            long deadlineNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(settings == null ? 0 : settings.shared.timeoutMs);
            for (WrittenParity parity : writing) {
                if (parity.hasEnded()) {
                    parity.await(deadlineNs);
                } else {
                    parity.fail();
                }
            }
            for (FileParity parity : reading) {
                parity.await(deadlineNs);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } finally {
            super.close();
        }
    }

    /** Null if switched off. */
    FilesClient client() {
        return client;
    }

    Settings settings() {
        return settings;
    }

    /** What the JVM's reads have done, as `name=value` pairs; empty if switched off. */
    public String counters() {
        if (client == null) {
            return "";
        }
        return client.counters + " declined_for_memory=" + client.pieces.declined();
    }

    /** The settings `fs.paritas.*`. */
    static final class Settings {
        final boolean isEnabled;
        final int k;
        final long minFileBytes;
        /** The longest file whose parity is made while it is written. */
        final long writeFileBytesMax;
        /** What a worker reads in a second to make parity ahead of readers. */
        final long prefetchBytesPerSecond;
        final boolean isWholeFile;
        final boolean isShortCircuit;
        final List<String> excluded = new ArrayList<>();
        final FilesClient.Settings shared = new FilesClient.Settings();

        Settings(Configuration conf) {
            isEnabled = conf.getBoolean("fs.paritas.enabled", true);
            k = conf.getInt("fs.paritas.k", 4);
            if (k < 1 || k > 64) {
                throw new IllegalArgumentException("fs.paritas.k is " + k + "; 1 to 64 is possible");
            }
            minFileBytes = conf.getLongBytes("fs.paritas.min.file", 8 << 20);
            writeFileBytesMax = conf.getLongBytes("fs.paritas.write.file.max", 1L << 30);
            prefetchBytesPerSecond = conf.getLongBytes("fs.paritas.prefetch.rate", 32L << 20);
            if (prefetchBytesPerSecond < 1) {
                throw new IllegalArgumentException(
                        "fs.paritas.prefetch.rate is " + prefetchBytesPerSecond + "; at least 1 byte a second is needed");
            }
            String policy = conf.get("fs.paritas.read.policy", "adaptive");
            isWholeFile = policy.equals("whole-file");
            if (!isWholeFile && !policy.equals("adaptive")) {
                throw new IllegalArgumentException(
                        "fs.paritas.read.policy is '" + policy + "'; 'adaptive' and 'whole-file' are possible");
            }
            isShortCircuit = conf.getBoolean("dfs.client.read.shortcircuit", false);
            for (String path : conf.getTrimmedStrings("fs.paritas.exclude", "/hbase")) {
                excluded.add(path.endsWith("/") ? path.substring(0, path.length() - 1) : path);
            }
            shared.steward = conf.getTrimmed("fs.paritas.steward", "");
            shared.cache = conf.getTrimmed("fs.paritas.cache", "");
            shared.stewardPassword = isEnabled ? Passwords.of(conf, FilesClient.PASSWORD_OF_STEWARD) : "";
            shared.cachePassword = isEnabled ? Passwords.of(conf, FilesClient.PASSWORD_OF_CACHE) : "";
            shared.namespace = conf.getTrimmed("fs.paritas.namespace", "hdfs");
            long subBytes = conf.getLongBytes("fs.paritas.subblock", 1 << 20);
            if (subBytes < 4096 || subBytes > 16 << 20) {
                throw new IllegalArgumentException("fs.paritas.subblock is " + subBytes + "; 4 KiB to 16 MiB is possible");
            }
            shared.subBytes = (int) subBytes;
            // A JVM with little heap must not lose it to reads.
            long most = Runtime.getRuntime().maxMemory() / 2;
            shared.readMemoryBytes = Math.min(conf.getLongBytes("fs.paritas.read.memory", 640L << 20), most);
            shared.hedgeShare = conf.getDouble("fs.paritas.hedge.budget", 0.1);
            if (!(shared.hedgeShare >= 0 && shared.hedgeShare <= 10)) {
                throw new IllegalArgumentException(
                        "fs.paritas.hedge.budget is " + shared.hedgeShare + "; 0 to 10 is possible, 0.1 is usual");
            }
            shared.timeoutMs = conf.getInt("fs.paritas.timeout.ms", 2000);
            if (shared.timeoutMs < 1) {
                throw new IllegalArgumentException("fs.paritas.timeout.ms is " + shared.timeoutMs + "; at least 1 is needed");
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
