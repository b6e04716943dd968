package io.paritas.hadoop;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DFSOutputStream;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;

/** Hadoop's client. All ways to create a file end in the same method of it, and so get parity there. */
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
}
