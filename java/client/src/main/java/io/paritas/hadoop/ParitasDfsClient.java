package io.paritas.hadoop;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.util.EnumSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.ChecksumOpt;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DFSOutputStream;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;
import org.apache.hadoop.util.Progressable;

/**
 * Hadoop's client. All ways to create a file end in the same method of it, and so get parity there. The steward is told of
 * files that it deletes or creates others in the place of.
 */
final class ParitasDfsClient extends DFSClient {
    private final ParityStreams streams;

    ParitasDfsClient(URI uri, Configuration conf, FileSystem.Statistics statistics, ParityStreams streams) throws IOException {
        super(uri, conf, statistics);
        this.streams = streams;
    }

    @Override
    public HdfsDataOutputStream createWrappedOutputStream(
            DFSOutputStream stream, FileSystem.Statistics statistics, long start) throws IOException {
        HdfsDataOutputStream own = super.createWrappedOutputStream(stream, statistics, start);
        return start == 0 ? streams.writing(this, own, statistics) : own;
    }

    @Override
    public boolean delete(String path, boolean recursive) throws IOException {
        long id = streams.idOf(this, path);
        boolean isGone = super.delete(path, recursive);
        if (isGone) {
            streams.onDeleted(id);
        }
        return isGone;
    }

    @Override
    public DFSOutputStream create(
            String path, FsPermission permission, EnumSet<CreateFlag> flags, boolean createParent, short replication,
            long blockSize, Progressable progress, int bufferSize, ChecksumOpt checksum, InetSocketAddress[] favoredNodes,
            String policy, String storagePolicy) throws IOException {
        long id = replaced(path, flags);
        DFSOutputStream stream = super.create(
                path, permission, flags, createParent, replication, blockSize, progress, bufferSize, checksum, favoredNodes,
                policy, storagePolicy);
        streams.onDeleted(id);
        return stream;
    }

    @Override
    public DFSOutputStream primitiveCreate(
            String path, FsPermission permission, EnumSet<CreateFlag> flags, boolean createParent, short replication,
            long blockSize, Progressable progress, int bufferSize, ChecksumOpt checksum) throws IOException {
        long id = replaced(path, flags);
        DFSOutputStream stream = super.primitiveCreate(
                path, permission, flags, createParent, replication, blockSize, progress, bufferSize, checksum);
        streams.onDeleted(id);
        return stream;
    }

    /** The file that goes when this one is created. One that is appended to stays. */
    private long replaced(String path, EnumSet<CreateFlag> flags) {
        boolean isReplaced = flags.contains(CreateFlag.OVERWRITE) && !flags.contains(CreateFlag.APPEND);
        return isReplaced ? streams.idOf(this, path) : 0;
    }
}
