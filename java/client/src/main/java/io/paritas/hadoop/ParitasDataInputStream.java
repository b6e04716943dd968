package io.paritas.hadoop;

import java.io.IOException;
import java.io.InputStream;
import java.util.List;
import org.apache.hadoop.hdfs.DFSInputStream;
import org.apache.hadoop.hdfs.ReadStatistics;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/**
 * What applications get: an HdfsDataInputStream, because some cast to it. Its bytes come from {@link ParitasStream}; what it
 * tells of blocks and DataNodes is of Hadoop's own stream below.
 */
final class ParitasDataInputStream extends HdfsDataInputStream {
    private final DFSInputStream store;

    ParitasDataInputStream(DFSInputStream store, ParitasStream stream) {
        super(store);
        this.store = store;
        in = stream;
    }

    @Override
    public InputStream getWrappedStream() {
        return store;
    }

    @Override
    public DatanodeInfo getCurrentDatanode() {
        return store.getCurrentDatanode();
    }

    @Override
    public ExtendedBlock getCurrentBlock() {
        return store.getCurrentBlock();
    }

    @Override
    public List<LocatedBlock> getAllBlocks() throws IOException {
        return store.getAllBlocks();
    }

    @Override
    public long getVisibleLength() {
        return store.getFileLength();
    }

    @Override
    public ReadStatistics getReadStatistics() {
        return store.getReadStatistics();
    }

    @Override
    public void clearReadStatistics() {
        store.clearReadStatistics();
    }
}
