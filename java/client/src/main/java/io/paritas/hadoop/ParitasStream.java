package io.paritas.hadoop;

import io.paritas.files.FileParity;
import io.paritas.files.FilesClient;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ByteBufferPositionedReadable;
import org.apache.hadoop.fs.ByteBufferReadable;
import org.apache.hadoop.fs.CanSetDropBehind;
import org.apache.hadoop.fs.CanSetReadahead;
import org.apache.hadoop.fs.CanUnbuffer;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.HasEnhancedByteBufferAccess;
import org.apache.hadoop.fs.ReadOption;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DFSInputStream;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.io.ByteBufferPool;

/**
 * Reads a file, whole stripes at once where the reader is taken to want them, and by Hadoop's own stream
 * otherwise.
 *
 * <p>Whole stripes: with the policy `whole-file` from a stripe's first byte on; else when the reader has read two blocks in
 * order and has come a little way into a stripe. Reads by position are hedged. Zero-copy reads always are Hadoop's.
 */
final class ParitasStream extends FSInputStream
        implements ByteBufferReadable, ByteBufferPositionedReadable, CanSetDropBehind, CanSetReadahead,
                HasEnhancedByteBufferAccess, CanUnbuffer, StreamCapabilities {
    /** How far a reader must come into a stripe: a task that only ends its last record there does not want the stripe. */
    private static final long PROBE_BYTES = 1 << 20;
    /** A reader that skips less goes on reading in order. */
    private static final long SKIP_BYTES_MAX = 1 << 20;
    /** So many small reads by position are Hadoop's: a reader of a file's footer must not cost a call of the NameNode. */
    private static final int PREADS_BEFORE_HEDGE = 3;
    private static final int HEDGE_AT_ONCE_BYTES = 1 << 20;
    private static final int HEDGED_BYTES_MAX = 4 << 20;
    private static final int COPY_BYTES = 64 << 10;
    private static final long NONE = -1;

    private final DFSInputStream store;
    private final DFSClient dfs;
    private final Configuration conf;
    private final FileSystem.Statistics statistics;
    private final String path;
    private final ParitasHdfs.Settings settings;
    private final FilesClient client;
    private final long length;
    private long position;
    private long runStart;
    private boolean closed;
    private final AtomicInteger preads = new AtomicInteger();
    /** Guards what `locate` learns, because reads by position must not wait for a read in order. */
    private final Object locating = new Object();
    private volatile boolean isPlain;
    private volatile FileParity parity;
    /** Is told of the file's parity once it is known. */
    private final Consumer<FileParity> onParity;
    private volatile BlockMap map;
    private HdfsStripe current;
    private HdfsStripe ahead;
    private long declinedStripe = NONE;
    private long triedAhead = NONE;
    /** A lane was lost: its token may have expired, or its block have been moved. */
    private boolean isMapOld;

    ParitasStream(
            DFSInputStream store, DFSClient dfs, Configuration conf, FileSystem.Statistics statistics, String path,
            ParitasHdfs.Settings settings, FilesClient client, Consumer<FileParity> onParity) {
        this.statistics = statistics;
        this.onParity = onParity;
        this.store = store;
        this.dfs = dfs;
        this.conf = conf;
        this.path = path;
        this.settings = settings;
        this.client = client;
        length = store.getFileLength();
    }

    @Override
    public synchronized int read() throws IOException {
        byte[] one = new byte[1];
        int count = read(one, 0, 1);
        return count < 0 ? -1 : one[0] & 0xFF;
    }

    @Override
    public synchronized int read(byte[] into, int at, int count) throws IOException {
        checkOpen();
        if (into == null) {
            throw new NullPointerException("no buffer");
        }
        if (at < 0 || count < 0 || count > into.length - at) {
            throw new IndexOutOfBoundsException(at + " + " + count + " in a buffer of " + into.length);
        }
        if (count == 0) {
            return 0;
        }
        if (position >= length) {
            return -1;
        }
        enterStripe();
        int done = current == null ? readStore(into, at, count) : readStripe(into, at, count);
        position += Math.max(0, done);
        return done;
    }

    @Override
    public synchronized int read(ByteBuffer into) throws IOException {
        if (into.hasArray() && !into.isReadOnly()) {
            int done = read(into.array(), into.arrayOffset() + into.position(), into.remaining());
            into.position(into.position() + Math.max(0, done));
            return done;
        }
        byte[] copy = new byte[Math.min(COPY_BYTES, into.remaining())];
        int done = read(copy, 0, copy.length);
        if (done > 0) {
            into.put(copy, 0, done);
        }
        return done;
    }

    @Override
    public synchronized void seek(long target) throws IOException {
        checkOpen();
        if (target > length) {
            throw new EOFException("Cannot seek after EOF");
        }
        if (target < 0) {
            throw new EOFException("Cannot seek to negative offset");
        }
        if (target < position || target - position > SKIP_BYTES_MAX) {
            runStart = target;
        }
        position = target;
        if (current != null && !current.covers(target)) {
            leaveStripe();
        }
    }

    @Override
    public synchronized long skip(long count) throws IOException {
        if (count <= 0) {
            return 0;
        }
        long before = position;
        seek(Math.min(length, position + count));
        return position - before;
    }

    @Override
    public synchronized long getPos() {
        return position;
    }

    @Override
    public synchronized int available() throws IOException {
        checkOpen();
        return (int) Math.min(length - position, Integer.MAX_VALUE);
    }

    @Override
    public synchronized void close() throws IOException {
        if (closed) {
            return;
        }
        closed = true;
        leaveStripe();
        if (parity != null) {
            parity.close();
        }
        store.close();
    }

    @Override
    public synchronized void unbuffer() {
        leaveStripe();
        store.unbuffer();
    }

    // What follows is Hadoop's.

    @Override
    public synchronized boolean seekToNewSource(long target) throws IOException {
        return store.seekToNewSource(target);
    }

    @Override
    public int read(long from, byte[] into, int at, int count) throws IOException {
        byte[] bytes = hedged(from, into, at, count);
        if (bytes == null) {
            return store.read(from, into, at, count);
        }
        System.arraycopy(bytes, 0, into, at, bytes.length);
        return bytes.length;
    }

    @Override
    public void readFully(long from, byte[] into, int at, int count) throws IOException {
        if (from < 0 || count <= 0 || into == null || from > length - count) {
            store.readFully(from, into, at, count);
            return;
        }
        for (int done = 0; done < count; ) {
            int got = read(from + done, into, at + done, count - done);
            if (got < 0) {
                throw new EOFException("the file ends at " + (from + done));
            }
            done += got;
        }
    }

    @Override
    public int read(long from, ByteBuffer into) throws IOException {
        return store.read(from, into);
    }

    @Override
    public void readFully(long from, ByteBuffer into) throws IOException {
        store.readFully(from, into);
    }

    @Override
    public synchronized ByteBuffer read(ByteBufferPool pool, int most, EnumSet<ReadOption> options) throws IOException {
        checkOpen();
        leaveStripe();
        store.seek(position);
        ByteBuffer buffer = store.read(pool, most, options);
        position = store.getPos();
        return buffer;
    }

    @Override
    public void releaseBuffer(ByteBuffer buffer) {
        store.releaseBuffer(buffer);
    }

    @Override
    public void setReadahead(Long bytes) throws IOException {
        store.setReadahead(bytes);
    }

    @Override
    public void setDropBehind(Boolean drops) throws IOException {
        store.setDropBehind(drops);
    }

    @Override
    public boolean hasCapability(String capability) {
        return store.hasCapability(capability);
    }

    /** The bytes up to the end of their block, or fewer than asked for. Null if Hadoop's stream is to read them. */
    private byte[] hedged(long from, byte[] into, int at, int count) throws IOException {
        boolean isUsual = into != null && at >= 0 && count > 0 && count <= into.length - at && from >= 0 && from < length;
        if (!isUsual || isPlain || !client.hedges() || settings.isShortCircuit) {
            return null;
        }
        if (preads.incrementAndGet() <= PREADS_BEFORE_HEDGE && count < HEDGE_AT_ONCE_BYTES) {
            return null;
        }
        locate();
        BlockMap blocks = map;
        // Only where Hadoop's own stream reads one block. It reads several of a striped file anyway.
        if (blocks == null || blocks.isStriped) {
            return null;
        }
        int block = (int) (from / blocks.file.blockBytes);
        long offset = from % blocks.file.blockBytes;
        long there = Math.min(length - from, blocks.file.blockBytes - offset);
        int bytes = (int) Math.min(Math.min(count, HEDGED_BYTES_MAX), there);
        HedgedRead read = new HedgedRead(
                dfs, statistics, client, blocks, parity, block, offset, bytes, buffer -> store.readFully(from, buffer, 0, bytes));
        long memory = read.memoryBytes();
        if (!client.pieces.reserve(memory)) {
            return null;
        }
        try {
            return read.run();
        } finally {
            client.pieces.release(memory);
        }
    }

    private void checkOpen() throws IOException {
        if (closed) {
            throw new IOException("Stream closed");
        }
    }

    private int readStore(byte[] into, int at, int count) throws IOException {
        if (store.getPos() != position) {
            store.seek(position);
        }
        return store.read(into, at, count);
    }

    private int readStripe(byte[] into, int at, int count) throws IOException {
        int done = current.read(position, into, at, count);
        if (done >= 0) {
            readAhead();
            return done;
        }
        // The parity can't stand for this lane: Hadoop's stream gives the bytes or its error.
        client.counters.lostReads.incrementAndGet();
        isMapOld = true;
        return readStore(into, at, (int) Math.min(count, map.laneEnd(position) - position));
    }

    /** Sets `current` to the stripe of the position, or to null if Hadoop's stream is to read it. */
    private void enterStripe() {
        if (current != null && current.covers(position)) {
            return;
        }
        if (current != null) {
            current.stop();
            current = null;
        }
        if (ahead != null && ahead.covers(position)) {
            current = ahead;
            ahead = null;
            return;
        }
        if (isPlain || !wantsMap()) {
            return;
        }
        locate();
        if (isPlain) {
            return;
        }
        long stripeBytes = map.stripeBytes();
        long stripe = position / stripeBytes;
        if (stripe != declinedStripe && wantsStripe(position % stripeBytes)) {
            if (isMapOld) {
                isMapOld = false;
                locateAgain();
            }
            current = HdfsStripe.start(dfs, conf, statistics, client, map, parity, stripe);
            if (current == null) {
                declinedStripe = stripe;
                client.onStripeDeclined(HdfsStripe.bytesNeeded(client, map, stripe));
            }
        }
    }

    private void leaveStripe() {
        if (current != null) {
            current.stop();
            current = null;
        }
        if (ahead != null) {
            ahead.stop();
            ahead = null;
        }
    }

    /** Whether it is worth a call of the NameNode to learn where the blocks are. */
    private boolean wantsMap() {
        return map != null || settings.isWholeFile || position - runStart >= settings.minFileBytes;
    }

    private boolean wantsStripe(long inStripe) {
        long probe = Math.min(PROBE_BYTES, map.file.blockBytes / 8);
        if (settings.isWholeFile) {
            return inStripe <= probe;
        }
        return position - runStart >= 2 * map.file.blockBytes && inStripe >= probe && inStripe <= 4 * probe;
    }

    private void locate() {
        synchronized (locating) {
            if (map != null || isPlain) {
                return;
            }
            BlockMap found = null;
            try {
                List<LocatedBlock> blocks = store.getAllBlocks();
                found = blocks.isEmpty() ? null : BlockMap.of(dfs, path, length, blocks.get(0), settings.k, settings.shared.subBytes);
            } catch (IOException e) {
                // Hadoop's stream has what it needs; if not, its error is the one to show.
                found = null;
            }
            if (found == null) {
                isPlain = true;
            } else {
                parity = new FileParity(client, found.file);
                onParity.accept(parity);
                map = found;
            }
        }
    }

    /** The lanes of the next stripe go where the blocks are now, with new tokens. */
    private void locateAgain() {
        try {
            LocatedBlock first = map.located.get(0);
            BlockMap found = BlockMap.of(dfs, path, length, first, settings.k, settings.shared.subBytes);
            if (found != null && found.file.version == map.file.version) {
                map = found;
            }
        } catch (IOException e) {
            // The old one may still do.
        }
    }

    /** Begins the next stripe as soon as this one needs no more bytes, if the reader is known to go on. */
    private void readAhead() {
        long next = current.index + 1;
        long stripeBytes = map.stripeBytes();
        boolean goesOn = settings.isWholeFile || position - runStart >= 2 * stripeBytes;
        if (ahead == null && triedAhead != next && goesOn && current.endOffset() < length && current.reader.isCovered()) {
            triedAhead = next;
            ahead = HdfsStripe.start(dfs, conf, statistics, client, map, parity, next);
        }
    }
}
