package io.paritas.lab;

import io.paritas.hadoop.ParitasHdfs;
import java.io.IOException;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;

/** File systems that sum how long their readers wait for bytes, and say it when the JVM ends: `read-ns=N` on stderr. */
final class TimedReads {
    private static final AtomicLong NANOS = new AtomicLong();

    static {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> System.err.println("read-ns=" + NANOS.get())));
    }

    private TimedReads() {}

    /** Hadoop's own. */
    public static final class Vanilla extends DistributedFileSystem {
        @Override
        public FSDataInputStream open(Path path, int bufferSize) throws IOException {
            return new FSDataInputStream(new Stream(super.open(path, bufferSize)));
        }
    }

    /** Ours. */
    public static final class Paritas extends ParitasHdfs {
        @Override
        public FSDataInputStream open(Path path, int bufferSize) throws IOException {
            return new FSDataInputStream(new Stream(super.open(path, bufferSize)));
        }
    }

    private static final class Stream extends FSInputStream {
        private final FSDataInputStream in;

        Stream(FSDataInputStream in) {
            this.in = in;
        }

        @Override
        public int read() throws IOException {
            long start = System.nanoTime();
            try {
                return in.read();
            } finally {
                NANOS.addAndGet(System.nanoTime() - start);
            }
        }

        @Override
        public int read(byte[] into, int at, int count) throws IOException {
            long start = System.nanoTime();
            try {
                return in.read(into, at, count);
            } finally {
                NANOS.addAndGet(System.nanoTime() - start);
            }
        }

        @Override
        public void seek(long position) throws IOException {
            in.seek(position);
        }

        @Override
        public long getPos() throws IOException {
            return in.getPos();
        }

        @Override
        public boolean seekToNewSource(long target) throws IOException {
            return in.seekToNewSource(target);
        }

        @Override
        public void close() throws IOException {
            in.close();
        }
    }
}
