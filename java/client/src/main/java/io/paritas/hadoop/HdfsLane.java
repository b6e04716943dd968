package io.paritas.hadoop;

import io.paritas.files.FilesClient;
import io.paritas.files.StripeReader;
import java.io.EOFException;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DFSInputStream;
import org.apache.hadoop.hdfs.DFSUtilClient;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;

/**
 * One block of a contiguous file, through a stream of Hadoop's own: checksums, other replicas, expired tokens and security
 * are its work.
 */
final class HdfsLane implements StripeReader.Lane {
    /** Not public, but the same in all versions that we support. Without it, each lane asks the NameNode once. */
    private static final Constructor<DFSInputStream> CONSTRUCTOR = constructor();

    private final DFSInputStream stream;
    private final BlockMap map;
    private final int block;
    /** Where offset 0 of the lane is in the file. */
    private final long begin;
    /** Only what is asked for is wanted, and nothing behind it. */
    private final boolean isRange;
    private final boolean interruptible;
    /** Counts what comes from DataNodes, of use or not. */
    private final AtomicLong bytes;
    private final FileSystem.Statistics statistics;

    /** `base` is the offset in the block from which on the lane counts. */
    HdfsLane(DFSClient dfs, FilesClient client, BlockMap map, int block, long base, boolean isRange, AtomicLong bytes,
            FileSystem.Statistics statistics) throws IOException {
        this.isRange = isRange;
        this.statistics = statistics;
        this.map = map;
        this.block = block;
        this.bytes = bytes;
        LocatedBlock located = map.located.get(block);
        begin = located.getStartOffset() + base;
        interruptible = !mayBeShortCircuit(dfs, located);
        stream = open(dfs, client, map, block);
    }

    @Override
    public void read(long offset, byte[] into, int length) throws IOException {
        if (isRange) {
            readAlone(offset, into, length);
            return;
        }
        long position = begin + offset;
        if (stream.getPos() != position) {
            stream.seek(position);
        }
        int done = 0;
        while (done < length) {
            int count = stream.read(into, done, length - done);
            if (count < 0) {
                throw new EOFException("the file ends at " + (position + done) + ", within one of its blocks");
            }
            done += count;
            onBytes(count);
        }
        check(stream.getCurrentBlock());
    }

    /** Requests only these bytes. To a stream the DataNode sends more than is read. */
    @Override
    public void readAlone(long offset, byte[] into, int length) throws IOException {
        stream.readFully(begin + offset, into, 0, length);
        onBytes(length);
        check(stream.getAllBlocks().get(block).getBlock());
    }

    /** Hadoop's stream has counted them for this thread. They are the reader's, who counts what he gets in his own. */
    private void onBytes(int count) {
        bytes.addAndGet(count);
        statistics.incrementBytesRead(-count);
    }

    /**
     * Where a token has expired, Hadoop's stream asks for the block at this offset again, by path. If the file has been
     * replaced, that is a block of the new one, and decoding with it would give bytes of neither.
     */
    private void check(ExtendedBlock served) throws IOException {
        if (!map.located.get(block).getBlock().equals(served)) {
            throw new IOException(map.file.path + " has been replaced since it was opened");
        }
    }

    @Override
    public String node() {
        DatanodeInfo node = stream.getCurrentDatanode();
        return node == null ? map.file.nodes.get(block) : node.getXferAddr();
    }

    /** An interrupt would close the file that other readers of this JVM share with a local, short-circuit read. */
    @Override
    public boolean isInterruptible() {
        return interruptible;
    }

    @Override
    public void close() throws IOException {
        stream.close();
    }

    private static boolean mayBeShortCircuit(DFSClient client, LocatedBlock block) throws IOException {
        if (!client.getConf().getShortCircuitConf().isShortCircuitLocalReads()) {
            return false;
        }
        for (DatanodeInfo node : block.getLocations()) {
            if (DFSUtilClient.isLocalAddress(
                    new java.net.InetSocketAddress(node.getIpAddr(), node.getXferPort()))) {
                return true;
            }
        }
        return false;
    }

    private static DFSInputStream open(DFSClient dfs, FilesClient client, BlockMap map, int block) throws IOException {
        if (CONSTRUCTOR == null) {
            DFSInputStream found = dfs.open(map.file.path);
            if (!found.getAllBlocks().get(0).getBlock().equals(map.located.get(0).getBlock())) {
                found.close();
                throw new IOException(map.file.path + " has been replaced since it was opened");
            }
            return found;
        }
        try {
            return CONSTRUCTOR.newInstance(dfs, map.file.path, true, map.copy(block, client));
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof IOException) {
                throw (IOException) e.getCause();
            }
            throw new IOException("Hadoop's stream of " + map.file.path + " could not be made", e.getCause());
        } catch (ReflectiveOperationException e) {
            throw new IOException("Hadoop's stream of " + map.file.path + " could not be made", e);
        }
    }

    private static Constructor<DFSInputStream> constructor() {
        try {
            Constructor<DFSInputStream> found = DFSInputStream.class.getDeclaredConstructor(
                    DFSClient.class, String.class, boolean.class, LocatedBlocks.class);
            found.setAccessible(true);
            return found;
        } catch (ReflectiveOperationException | RuntimeException e) {
            return null;
        }
    }
}
