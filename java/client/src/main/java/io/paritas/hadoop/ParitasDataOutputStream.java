package io.paritas.hadoop;

import io.paritas.files.WrittenParity;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;

/**
 * A new file: every byte goes to Hadoop's own stream, and into the file's parity. What happens to the parity changes
 * nothing about the file.
 */
final class ParitasDataOutputStream extends HdfsDataOutputStream {
    private final NewFile file;
    private final DFSClient dfs;
    private final ParitasHdfs.Settings settings;
    private final Tee tee;

    ParitasDataOutputStream(
            NewFile file, FileSystem.Statistics statistics, DFSClient dfs, ParitasHdfs.Settings settings, WrittenParity parity)
            throws IOException {
        super(file.stream, statistics);
        this.file = file;
        this.dfs = dfs;
        this.settings = settings;
        tee = new Tee(out, parity);
        out = tee;
    }

    @Override
    public long getPos() {
        return tee.position;
    }

    /**
     * The file's version, if it has the `length` bytes that were written and no others. Asked by its inode: it may have another name by
     * now. Whoever has changed it since (truncated, appended, joined) has given it another last block or another generation
     * of it, or is still writing.
     */
    private long version(long length) throws IOException {
        BlockMap map = BlockMap.of(
                dfs, "/.reserved/.inodes/" + file.id, length, null, settings.k, settings.shared.subBytes);
        ExtendedBlock written = file.lastBlock();
        boolean isSame = map != null && written != null
                && map.file.id == file.id
                && map.isStriped == file.isStriped()
                && map.file.k == file.units(settings.k)
                && map.file.blockBytes == file.blockBytes
                && map.lastBlock().equals(written)
                && map.lastBlock().getGenerationStamp() == written.getGenerationStamp();
        if (!isSame) {
            throw new IOException("the file is not the one that was written, or has unusual blocks");
        }
        return map.file.version;
    }

    /** What all methods of the stream write to. */
    private final class Tee extends FilterOutputStream {
        private final WrittenParity parity;
        private final byte[] single = new byte[1];
        /** Read without the lock: a write may hold that for as long as Hadoop repairs a pipeline. */
        private volatile long position;
        private boolean isClosed;

        Tee(OutputStream below, WrittenParity parity) {
            super(below);
            this.parity = parity;
        }

        @Override
        public synchronized void write(int one) throws IOException {
            single[0] = (byte) one;
            write(single, 0, 1);
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
            try {
                parity.data(bytes, at, count);
            } catch (RuntimeException | Error e) {
                // Memory, for one. The file has the bytes, so its writer must not hear of it.
                parity.fail();
            }
        }

        private void end() {
            try {
                parity.end(ParitasDataOutputStream.this::version);
            } catch (RuntimeException | Error e) {
                parity.fail();
            }
        }

        @Override
        public synchronized void close() throws IOException {
            boolean done = false;
            try {
                out.close();
                done = true;
            } finally {
                boolean ends = done && !isClosed;
                isClosed = true;
                if (ends) {
                    end();
                } else if (!done) {
                    parity.fail();
                }
            }
        }
    }
}
