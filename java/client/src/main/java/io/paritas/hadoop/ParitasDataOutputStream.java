package io.paritas.hadoop;

import io.paritas.files.WrittenParity;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.reflect.Method;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DFSOutputStream;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;

/**
 * A new contiguous file: every byte goes to Hadoop's own stream, and into the file's parity. What happens to the parity changes
 * nothing about the file.
 */
final class ParitasDataOutputStream extends HdfsDataOutputStream {
    /** Not public, but the same in all versions that we support. Without it no parity is made: see `version`. */
    private static final Method LAST_BLOCK = lastBlock();

    private final DFSOutputStream store;
    private final DFSClient dfs;
    private final int k;
    private final long blockBytes;
    private final int subBytes;
    private final Tee tee;

    ParitasDataOutputStream(
            DFSOutputStream store, FileSystem.Statistics statistics, DFSClient dfs, ParitasHdfs.Settings settings,
            long blockBytes, WrittenParity parity) throws IOException {
        super(store, statistics);
        this.store = store;
        this.dfs = dfs;
        this.blockBytes = blockBytes;
        k = settings.k;
        subBytes = settings.shared.subBytes;
        tee = new Tee(out, parity);
        out = tee;
    }

    /** Whether the parity of files that are written can be made with this Hadoop. */
    static boolean isPossible() {
        return LAST_BLOCK != null;
    }

    @Override
    public long getPos() {
        return tee.position();
    }

    /**
     * The file's version, if it has the bytes that were written and no others. Asked by its inode: it may have another name by
     * now. Whoever has changed it since (truncated, appended, joined) has given it another last block or another generation
     * of it, or is still writing.
     */
    private long version(long length) throws IOException {
        BlockMap map = BlockMap.of(dfs, "/.reserved/.inodes/" + store.getFileId(), length, null, k, subBytes);
        ExtendedBlock written;
        try {
            written = (ExtendedBlock) LAST_BLOCK.invoke(store);
        } catch (ReflectiveOperationException e) {
            throw new IOException("Hadoop's stream does not tell its last block", e);
        }
        boolean isSame = map != null && written != null
                && map.file.id == store.getFileId()
                && !map.isStriped
                && map.file.blockBytes == blockBytes
                && map.lastBlock().equals(written)
                && map.lastBlock().getGenerationStamp() == written.getGenerationStamp();
        if (!isSame) {
            throw new IOException("the file is not the one that was written, or has unusual blocks");
        }
        return map.file.version;
    }

    private static Method lastBlock() {
        try {
            Method found = DFSOutputStream.class.getDeclaredMethod("getBlock");
            found.setAccessible(true);
            return found;
        } catch (ReflectiveOperationException | RuntimeException e) {
            return null;
        }
    }

    /** What all methods of the stream write to. */
    private final class Tee extends FilterOutputStream {
        private final WrittenParity parity;
        private long position;
        private boolean isClosed;

        Tee(OutputStream below, WrittenParity parity) {
            super(below);
            this.parity = parity;
        }

        @Override
        public synchronized void write(int one) throws IOException {
            write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public synchronized void write(byte[] bytes, int at, int count) throws IOException {
            boolean done = false;
            try {
                out.write(bytes, at, count);
                done = true;
            } finally {
                if (!done) {
                    // Some of the bytes may be in the file.
                    parity.fail();
                }
            }
            position += count;
            parity.data(bytes, at, count);
        }

        @Override
        public synchronized void close() throws IOException {
            boolean done = false;
            try {
                out.close();
                done = true;
            } finally {
                if (!isClosed && done) {
                    parity.end(() -> version(position()));
                } else if (!done) {
                    parity.fail();
                }
                isClosed = true;
            }
        }

        synchronized long position() {
            return position;
        }
    }
}
