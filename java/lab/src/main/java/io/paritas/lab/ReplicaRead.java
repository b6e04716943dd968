package io.paritas.lab;

import io.paritas.files.StripeReader;
import java.io.EOFException;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.StorageType;
import org.apache.hadoop.hdfs.BlockReader;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.client.impl.BlockReaderFactory;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.server.datanode.CachingStrategy;
import org.apache.hadoop.net.NetUtils;
import org.apache.hadoop.security.UserGroupInformation;

/** Reads one block, or internal block, from the DataNode that is named. */
final class ReplicaRead implements StripeReader.Lane {
    private final DFSClient dfs;
    private final Configuration conf;
    private final String path;
    private final LocatedBlock block;
    private final DatanodeInfo node;
    private final StorageType storage;
    private BlockReader reader;
    private long position;

    ReplicaRead(DFSClient dfs, Configuration conf, String path, LocatedBlock block, int replica) {
        this.dfs = dfs;
        this.conf = conf;
        this.path = path;
        this.block = block;
        node = block.getLocations()[replica];
        StorageType[] types = block.getStorageTypes();
        storage = types == null || types.length <= replica ? StorageType.DEFAULT : types[replica];
    }

    @Override
    public void read(long offset, byte[] into, int length) throws IOException {
        read(offset, into, 0, length);
    }

    void read(long offset, byte[] into, int at, int length) throws IOException {
        if (reader == null || position != offset) {
            close();
            reader = open(offset);
            position = offset;
        }
        for (int done = 0; done < length; ) {
            int count = reader.read(into, at + done, length - done);
            if (count < 0) {
                throw new EOFException("block " + block.getBlock() + " ends at " + position);
            }
            done += count;
            position += count;
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
        return new BlockReaderFactory(dfs.getConf())
                .setInetSocketAddress(NetUtils.createSocketAddr(
                        node.getXferAddr(dfs.getConf().isConnectToDnViaHostname())))
                .setRemotePeerFactory(dfs)
                .setDatanodeInfo(node)
                .setStorageType(storage)
                .setFileName(path)
                .setBlock(block.getBlock())
                .setBlockToken(block.getBlockToken())
                .setStartOffset(offset)
                .setLength(block.getBlockSize() - offset)
                .setVerifyChecksum(true)
                .setClientName(dfs.getClientName())
                .setCachingStrategy(CachingStrategy.newDefaultStrategy())
                .setAllowShortCircuitLocalReads(false)
                .setClientCacheContext(dfs.getClientContext())
                .setUserGroupInformation(UserGroupInformation.getCurrentUser())
                .setConfiguration(conf)
                .build();
    }
}
