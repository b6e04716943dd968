package io.paritas.hadoop;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.util.EnumSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.AbstractFileSystem;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FilterFs;
import org.apache.hadoop.fs.Options.ChecksumOpt;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DFSOutputStream;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.apache.hadoop.util.Progressable;
import org.apache.hadoop.util.ShutdownHookManager;

/**
 * The same as {@link ParitasHdfs} for users of FileContext: `fs.AbstractFileSystem.hdfs.impl` = this class. Files are opened
 * and created through a client of its own. All else is Hadoop's own `Hdfs`.
 */
public final class ParitasHdfsContext extends FilterFs {
    private static final String KEY = "fs.AbstractFileSystem.hdfs.impl";
    private static final String OWN = "org.apache.hadoop.fs.Hdfs";
    /** A FileContext is never closed: what it has under way is waited for when the JVM ends. */
    private static final PendingParity PENDING = new PendingParity();
    private static final AtomicLong TIMEOUT_MS = new AtomicLong();

    /** Null if switched off: then everything is Hadoop's own. */
    private final ParityStreams streams;
    private final ParitasDfsClient dfs;
    private boolean verifies = true;

    /** As Hadoop makes it. */
    public ParitasHdfsContext(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(own(uri, conf));
        ParityStreams made = ParityStreams.of(new ParitasHdfs.Settings(conf), conf, getStatistics(), PENDING);
        dfs = made == null ? null : client(uri, conf, made);
        streams = dfs == null ? null : made;
        if (streams != null) {
            waitAtEnd(streams.settings.shared.timeoutMs);
        }
    }

    /** Null if there can be no second client: Hadoop's own could be made, and is enough. */
    private ParitasDfsClient client(URI uri, Configuration conf, ParityStreams made) {
        try {
            return new ParitasDfsClient(uri, conf, getStatistics(), made);
        } catch (IOException e) {
            return null;
        }
    }

    private static void waitAtEnd(long timeoutMs) {
        if (TIMEOUT_MS.getAndAccumulate(timeoutMs, Math::max) != 0) {
            return;
        }
        try {
            // Hadoop gives hooks 30 s by default, and stops what takes longer.
            ShutdownHookManager.get().addShutdownHook(() -> PENDING.finish(TIMEOUT_MS.get()), FileSystem.SHUTDOWN_HOOK_PRIORITY);
        } catch (IllegalStateException e) {
            // The JVM ends already: what is under way may be lost.
        }
    }

    private static AbstractFileSystem own(URI uri, Configuration conf) throws UnsupportedFileSystemException {
        Configuration changed = new Configuration(conf);
        changed.set(KEY, OWN);
        return AbstractFileSystem.createFileSystem(uri, changed);
    }

    @Override
    public void setVerifyChecksum(boolean verifyChecksum) throws IOException {
        super.setVerifyChecksum(verifyChecksum);
        verifies = verifyChecksum;
    }

    @Override
    public FSDataInputStream open(Path path) throws IOException {
        return open(path, getServerDefaults(path).getFileBufferSize());
    }

    @Override
    public FSDataInputStream open(Path path, int bufferSize) throws IOException {
        if (streams == null || !verifies) {
            return super.open(path, bufferSize);
        }
        checkPath(path);
        String name = getUriPath(path);
        HdfsDataInputStream own = dfs.createWrappedInputStream(dfs.open(name, bufferSize, verifies));
        return streams.reading(dfs, own, name);
    }

    @Override
    public CompletableFuture<FSDataInputStream> openFileWithOptions(Path path, OpenFileParameters parameters)
            throws IOException {
        if (streams == null || !parameters.getMandatoryKeys().isEmpty()) {
            return super.openFileWithOptions(path, parameters);
        }
        CompletableFuture<FSDataInputStream> future = new CompletableFuture<>();
        try {
            future.complete(open(path, parameters.getBufferSize()));
        } catch (IOException | RuntimeException e) {
            future.completeExceptionally(e);
        }
        return future;
    }

    @Override
    public FSDataOutputStream createInternal(
            Path path, EnumSet<CreateFlag> flags, FsPermission permission, int bufferSize, short replication, long blockSize,
            Progressable progress, ChecksumOpt checksum, boolean createParent) throws IOException {
        if (streams == null) {
            return super.createInternal(
                    path, flags, permission, bufferSize, replication, blockSize, progress, checksum, createParent);
        }
        checkPath(path);
        DFSOutputStream stream = dfs.primitiveCreate(
                getUriPath(path), permission, flags, createParent, replication, blockSize, progress, bufferSize, checksum);
        return dfs.createWrappedOutputStream(stream, getStatistics(), stream.getInitialLen());
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        if (streams == null) {
            return super.delete(path, recursive);
        }
        checkPath(path);
        return dfs.delete(getUriPath(path), recursive);
    }

    /** `FilterFs` lists a directory as a whole. */
    @Override
    public RemoteIterator<FileStatus> listStatusIterator(Path path) throws IOException {
        return getMyFs().listStatusIterator(path);
    }
}
