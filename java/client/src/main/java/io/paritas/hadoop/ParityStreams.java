package io.paritas.hadoop;

import io.paritas.files.FilesClient;
import io.paritas.files.WrittenParity;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DFSInputStream;
import org.apache.hadoop.hdfs.DFSOutputStream;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;

/** Puts streams that use and make parity in the place of Hadoop's own. What is unusual stays Hadoop's. */
final class ParityStreams {
    final ParitasHdfs.Settings settings;
    final FilesClient client;
    final PendingParity pending;
    private final Configuration conf;
    private final FileSystem.Statistics statistics;

    private ParityStreams(
            ParitasHdfs.Settings settings, Configuration conf, FileSystem.Statistics statistics, PendingParity pending) {
        this.statistics = statistics;
        this.settings = settings;
        this.conf = conf;
        this.pending = pending;
        client = FilesClient.of(settings.shared);
    }

    /** Null if it is switched off. */
    static ParityStreams of(
            ParitasHdfs.Settings settings, Configuration conf, FileSystem.Statistics statistics, PendingParity pending) {
        return settings.isEnabled ? new ParityStreams(settings, conf, statistics, pending) : null;
    }

    /** Whether new files may get parity while they are written. */
    boolean makesParity() {
        return client.isConfigured() && settings.writeFileBytesMax > 0;
    }

    /**
     * The number of the file at this path, if it may have parity that is of no use when it is gone; else 0. It costs a call of
     * the NameNode.
     */
    long idOf(DFSClient dfs, String path) {
        if (!client.isConfigured() || !settings.wants(path, settings.minFileBytes)) {
            return 0;
        }
        try {
            HdfsFileStatus status = dfs.getFileInfo(path);
            return status == null || status.isDirectory() || status.getLen() < settings.minFileBytes ? 0 : status.getFileId();
        } catch (IOException e) {
            // Whoever asked for this path gets the error of what he does next.
            return 0;
        }
    }

    /** The file with this number is gone; 0: none is. Waits for nothing. */
    void onDeleted(long id) {
        Future<?> message = id == 0 ? null : client.tellDeleted(id);
        if (message != null) {
            pending.add(message);
        }
    }

    /** The same file as a stream that uses parity. */
    FSDataInputStream reading(DFSClient dfs, HdfsDataInputStream own, String path) {
        InputStream wrapped = own.getWrappedStream();
        if (!(wrapped instanceof DFSInputStream)
                || ((DFSInputStream) wrapped).getFileEncryptionInfo() != null
                || !settings.wants(path, own.getVisibleLength())) {
            return own;
        }
        DFSInputStream store = (DFSInputStream) wrapped;
        return new ParitasDataInputStream(
                store, new ParitasStream(store, dfs, conf, statistics, path, settings, client, pending::add));
    }

    /** The same new file as a stream that makes parity too. */
    HdfsDataOutputStream writing(DFSClient dfs, HdfsDataOutputStream own, FileSystem.Statistics statistics)
            throws IOException {
        OutputStream wrapped = own.getWrappedStream();
        if (!makesParity() || !(wrapped instanceof DFSOutputStream) || ((DFSOutputStream) wrapped).getInitialLen() != 0) {
            return own;
        }
        NewFile file = NewFile.of((DFSOutputStream) wrapped);
        if (file == null || !file.isUsual(settings.shared.subBytes) || !settings.wants(file.path, settings.minFileBytes)) {
            return own;
        }
        WrittenParity parity;
        try {
            parity = new WrittenParity(
                    client, file.id, file.isStriped(), file.units(settings.k), file.blockBytes, settings.minFileBytes,
                    settings.writeFileBytesMax);
        } catch (ArithmeticException e) {
            // Blocks of more subblocks than can be counted. The file is created already, and must not be left open.
            return own;
        }
        pending.add(parity);
        return new ParitasDataOutputStream(file, statistics, dfs, settings, parity);
    }
}
