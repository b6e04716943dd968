package io.paritas.hadoop;

import io.paritas.files.StripeReader;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.BlockReader;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.client.impl.BlockReaderFactory;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.server.datanode.CachingStrategy;
import org.apache.hadoop.net.NetUtils;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * One internal block of a file with an erasure-coding policy, from the one DataNode that has it. A failure, an expired token
 * too, is the lane's end: the parity stands for it, and if it can't, Hadoop's own stream reads those bytes.
 */
final class InternalBlockLane implements StripeReader.Lane {
    private final DFSClient client;
    private final Configuration conf;
    private final String path;
    private final LocatedBlock block;
    private final DatanodeInfo node;
    private final AtomicLong bytes;
    private final FileSystem.Statistics statistics;
    /** The offset in the block from which on the lane counts, and what is wanted of it. */
    private final long base;
    private final long bytesMax;
    private BlockReader reader;
    private long position;

    InternalBlockLane(DFSClient client, Configuration conf, String path, LocatedBlock block, long base,
            long bytesMax, AtomicLong bytes, FileSystem.Statistics statistics) {
        this.base = base;
        this.bytesMax = bytesMax;
        this.statistics = statistics;
        this.client = client;
        this.conf = conf;
        this.path = path;
        this.block = block;
        this.bytes = bytes;
        node = block.getLocations()[0];
    }

    @Override
    public void read(long offset, byte[] into, int length) throws IOException {
        if (reader == null || position != offset) {
            close();
            reader = open(offset);
            position = offset;
        }
        int done = 0;
        while (done < length) {
            int count = reader.read(into, done, length - done);
            if (count < 0) {
                throw new EOFException("internal block " + block.getBlock() + " ends at " + position);
            }
            done += count;
            position += count;
            bytes.addAndGet(count);
            statistics.incrementBytesReadByDistance(reader.getNetworkDistance(), count);
        }
    }

    @Override
    public String node() {
        return node.getXferAddr();
    }

    @Override
    public boolean isInterruptible() {
        return true;
    }

    @Override
    public void close() throws IOException {
        if (reader != null) {
            BlockReader closing = reader;
            reader = null;
            closing.close();
        }
    }

    private BlockReader open(long offset) throws IOException {
        InetSocketAddress address = NetUtils.createSocketAddr(
                node.getXferAddr(client.getConf().isConnectToDnViaHostname()));
        StorageType[] types = block.getStorageTypes();
        return new BlockReaderFactory(client.getConf())
                .setInetSocketAddress(address)
                .setRemotePeerFactory(client)
                .setDatanodeInfo(node)
                .setStorageType(types == null || types.length == 0 ? StorageType.DEFAULT : types[0])
                .setFileName(path)
                .setBlock(block.getBlock())
                .setBlockToken(block.getBlockToken())
                .setStartOffset(base + offset)
                .setLength(Math.min(bytesMax, block.getBlockSize() - base - offset))
                .setVerifyChecksum(true)
                .setClientName(client.getClientName())
                .setCachingStrategy(CachingStrategy.newDefaultStrategy())
                // An interrupt would close a file that other readers of this JVM share.
                .setAllowShortCircuitLocalReads(false)
                .setClientCacheContext(client.getClientContext())
                .setUserGroupInformation(UserGroupInformation.getCurrentUser())
                .setConfiguration(conf)
                .build();
    }
}
