package io.paritas.lab;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;

/** Inputs and outputs of jobs. */
final class Trees {
    private static final int BUFFER_BYTES = 1 << 20;

    private Trees() {}

    /** Copies a file of any file system, so that block i is on the DataNodes i. */
    static void put(DistributedFileSystem hdfs, Path path, Path source, long block, InetSocketAddress[][] nodes)
            throws IOException {
        FileSystem from = source.getFileSystem(new Configuration(hdfs.getConf()));
        long length = from.getFileStatus(source).getLen();
        int blocks = (int) ((length + block - 1) / block);
        Path[] rest = new Path[blocks - 1];
        byte[] buffer = new byte[BUFFER_BYTES];
        try (InputStream in = from.open(source)) {
            for (int i = 0; i < blocks; i++) {
                Path part = i == 0 ? path : (rest[i - 1] = new Path(path + ".part" + i));
                InetSocketAddress[] wanted = nodes[i % nodes.length];
                try (OutputStream out = hdfs.create(part, FsPermission.getFileDefault(), true, BUFFER_BYTES,
                        (short) wanted.length, block, null, wanted)) {
                    for (long left = Math.min(block, length - i * block); left > 0; ) {
                        int count = in.read(buffer, 0, (int) Math.min(left, buffer.length));
                        if (count < 0) {
                            throw new IOException(source + " ends early");
                        }
                        out.write(buffer, 0, count);
                        left -= count;
                    }
                }
            }
        }
        if (rest.length > 0) {
            hdfs.concat(path, rest);
        }
    }

    /** Reads a file to its end. Returns its length. */
    static long drain(FileSystem fs, Path path) throws IOException {
        byte[] buffer = new byte[BUFFER_BYTES];
        long bytes = 0;
        try (InputStream in = fs.open(path)) {
            for (int count = in.read(buffer); count >= 0; count = in.read(buffer)) {
                bytes += count;
            }
        }
        return bytes;
    }

    /** The SHA-256 of all bytes of a job's output: its part files in the order of their names. */
    static String digest(FileSystem fs, Path directory) throws IOException {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            byte[] buffer = new byte[BUFFER_BYTES];
            FileStatus[] files = fs.listStatus(directory, path -> path.getName().startsWith("part-"));
            if (files.length == 0) {
                throw new IOException(directory + " has no part files");
            }
            Arrays.sort(files);
            for (FileStatus file : files) {
                try (InputStream in = fs.open(file.getPath())) {
                    for (int count = in.read(buffer); count >= 0; count = in.read(buffer)) {
                        digest.update(buffer, 0, count);
                    }
                }
            }
            StringBuilder text = new StringBuilder();
            for (byte each : digest.digest()) {
                text.append(String.format("%02x", each));
            }
            return text.toString();
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
