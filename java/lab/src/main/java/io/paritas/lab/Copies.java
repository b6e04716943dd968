package io.paritas.lab;

import io.paritas.files.FileParity;
import io.paritas.files.ParityValue;
import io.paritas.files.RespPool;
import io.paritas.files.StewardClient;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;

/** Copies of blocks in the cache, as the steward decides. They are written after the read that was timed. */
final class Copies {
    /** What the cache has of a file. `first` is the index of its first block: not 0 where only one block counts. */
    static final class Found {
        private final FileParity.File file;
        private final int first;
        private final StewardClient.Grant grant;

        Found(FileParity.File file, int first, StewardClient.Grant grant) {
            this.file = file;
            this.first = first;
            this.grant = grant;
        }

        boolean has(int block) {
            boolean isOfIt = block >= first && (block - first) * file.blockBytes < file.length;
            return grant.decision == StewardClient.Decision.CACHED && isOfIt;
        }
    }

    private static final byte[] NO_SECRET = {};
    private static final int SUB_BYTES = 1 << 20;
    private static final int TTL_SECONDS = 3600;
    private static final int TIMEOUT_MS = 5000;
    /** Numbers of blocks in an id of their own. */
    private static final int BLOCKS_MAX = 1024;

    private final String namespace;
    private final RespPool cache;
    private final StewardClient steward;
    private final boolean slowOnly;
    private final boolean reports;
    private final ExecutorService writer = Executors.newSingleThreadExecutor(work -> {
        Thread thread = new Thread(work, "lab-copies");
        thread.setDaemon(true);
        return thread;
    });
    private final List<Future<?>> writing = new ArrayList<>();

    Copies(Configuration conf, boolean slowOnly) {
        namespace = conf.get("fs.paritas.namespace");
        cache = new RespPool(conf.get("fs.paritas.cache"), TIMEOUT_MS);
        steward = new StewardClient(new RespPool(conf.get("fs.paritas.steward"), TIMEOUT_MS), namespace);
        reports = conf.getBoolean("lab.reports", false);
        this.slowOnly = slowOnly;
    }

    /** Null if nothing of the file is to be cached. */
    Found find(FileParity.File file, Set<String> slow) throws IOException {
        if (!slowOnly) {
            return new Found(file, 0, steward.open(file));
        }
        for (int block = 0; block < file.nodes.size(); block++) {
            if (slow.contains(file.nodes.get(block))) {
                long length = Math.min(file.blockBytes, file.length - block * file.blockBytes);
                FileParity.File one = new FileParity.File(file.path + '#' + block, file.id * BLOCKS_MAX + block, file.version,
                        length, false, file.blockBytes, 1, Collections.singletonList(file.nodes.get(block)));
                return new Found(one, block, steward.open(one));
            }
        }
        return null;
    }

    void read(Found found, int block, byte[] into, int at, int length) throws IOException {
        byte[] piece = new byte[SUB_BYTES];
        for (int sub = 0; sub * SUB_BYTES < length; sub++) {
            int wanted = Math.min(SUB_BYTES, length - sub * SUB_BYTES);
            byte[] header = new byte[ParityValue.HEADER_BYTES];
            String key = key(found, block, sub);
            int count = cache.use(key.hashCode() & 0xFFFF, SUB_BYTES, connection -> connection.get(key, header, piece));
            if (count != wanted || !ParityValue.isOf(NO_SECRET, key, header, piece, count)) {
                throw new IOException(key + " has " + count + " bytes that are not the copy");
            }
            System.arraycopy(piece, 0, into, at + sub * SUB_BYTES, wanted);
        }
    }

    /** The read is over: writes the copies if they are wanted, and reports. */
    void after(Found found, byte[] bytes, List<StewardClient.Sample> samples) throws IOException {
        if (reports && !samples.isEmpty()) {
            steward.report(samples);
        }
        if (found == null || found.grant.pin == 0) {
            return;
        }
        if (found.grant.decision == StewardClient.Decision.CACHED) {
            steward.close(found.grant.pin);
        } else {
            writing.add(writer.submit(() -> {
                write(found, bytes);
                return null;
            }));
        }
    }

    void settle() throws IOException {
        try {
            for (Future<?> each : writing) {
                each.get();
            }
        } catch (ExecutionException | InterruptedException e) {
            throw new IOException(e);
        } finally {
            writing.clear();
        }
    }

    private void write(Found found, byte[] bytes) throws IOException {
        int written = 0;
        byte[] piece = new byte[SUB_BYTES];
        long start = found.first * found.file.blockBytes;
        for (long at = 0; at < found.file.length; written++) {
            long inBlock = at % found.file.blockBytes;
            long left = Math.min(found.file.length - at, found.file.blockBytes - inBlock);
            int count = (int) Math.min(SUB_BYTES, left);
            System.arraycopy(bytes, (int) (start + at), piece, 0, count);
            String key = key(found, found.first + (int) (at / found.file.blockBytes), (int) (inBlock / SUB_BYTES));
            byte[] header = ParityValue.header(NO_SECRET, key, piece, count);
            cache.use(key.hashCode() & 0xFFFF, SUB_BYTES, connection -> {
                connection.set(key, header, piece, count, TTL_SECONDS);
                return null;
            });
            at += count;
        }
        String key = ParityValue.versionKey(namespace, found.file.id, found.grant.token);
        byte[] version = ParityValue.version(found.file.version);
        byte[] header = ParityValue.header(NO_SECRET, key, version, version.length);
        cache.use(key.hashCode() & 0xFFFF, version.length, connection -> {
            connection.set(key, header, version, version.length, TTL_SECONDS);
            return null;
        });
        steward.commit(found.grant.pin, written);
    }

    private String key(Found found, int block, int sub) {
        return ParityValue.key(namespace, found.file.id, found.grant.token, block - found.first, sub);
    }
}
