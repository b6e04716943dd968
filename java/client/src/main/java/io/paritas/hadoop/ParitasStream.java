package io.paritas.hadoop;

import io.paritas.files.FileParity;
import io.paritas.files.FilesClient;
import io.paritas.files.StripeReader;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.EnumSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.function.IntFunction;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ByteBufferPositionedReadable;
import org.apache.hadoop.fs.ByteBufferReadable;
import org.apache.hadoop.fs.CanSetDropBehind;
import org.apache.hadoop.fs.CanSetReadahead;
import org.apache.hadoop.fs.CanUnbuffer;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.HasEnhancedByteBufferAccess;
import org.apache.hadoop.fs.ReadOption;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DFSInputStream;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.io.ByteBufferPool;

/**
 * Reads a file. Each read is one or more ranges of bytes, and a range is read as {@link HdfsStripe} says, whether it is asked for in
 * order, by position or as one of several.
 *
 * <p>A reader in order is read ahead of: all of a stripe with the policy `whole-file`, or when it has read two blocks in order; else
 * a window of some subblocks. Small first reads are Hadoop's own, so that a look at a file's head or foot costs no call of the NameNode.
 * Zero-copy reads always are Hadoop's.
 */
final class ParitasStream extends FSInputStream
        implements ByteBufferReadable, ByteBufferPositionedReadable, CanSetDropBehind, CanSetReadahead,
                HasEnhancedByteBufferAccess, CanUnbuffer, StreamCapabilities {
    /** A reader that skips less goes on reading in order. */
    private static final long SKIP_BYTES_MAX = 1 << 20;
    /** What a reader gets by small requests before the NameNode is asked where all blocks are. */
    private static final long HEAD_BYTES = 64 << 10;
    private static final int SMALL_BYTES = 4 << 10;
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
    /** Bytes that were read by position. */
    private final AtomicLong positionBytes = new AtomicLong();
    /** Guards what `locate` learns, because reads by position must not wait for a read in order. */
    private final Object locating = new Object();
    private volatile boolean isPlain;
    private FileParity parity;
    /** Is told of the file's parity once it is known. */
    private final Consumer<FileParity> onParity;
    private volatile HdfsStripe.File file;
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
        enterStripe(count);
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
        if (current != null && !current.reaches(target)) {
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
        boolean isUsual = into != null && at >= 0 && count > 0 && count <= into.length - at && from >= 0 && from < length;
        PositionRead read = isUsual ? start(from, (int) Math.min(count, length - from)) : null;
        return read == null ? store.read(from, into, at, count) : read.finish(into, at);
    }

    @Override
    public void readFully(long from, byte[] into, int at, int count) throws IOException {
        boolean isUsual = into != null && at >= 0 && count > 0 && count <= into.length - at && from >= 0 && from <= length - count;
        PositionRead read = isUsual ? start(from, count) : null;
        if (read == null) {
            store.readFully(from, into, at, count);
        } else {
            read.finish(into, at);
        }
    }

    @Override
    public int read(long from, ByteBuffer into) throws IOException {
        boolean isUsual = into.hasRemaining() && from >= 0 && from < length;
        PositionRead read = isUsual ? start(from, (int) Math.min(into.remaining(), length - from)) : null;
        return read == null ? store.read(from, into) : read.finish(into);
    }

    @Override
    public void readFully(long from, ByteBuffer into) throws IOException {
        boolean isUsual = into.hasRemaining() && from >= 0 && from <= length - into.remaining();
        PositionRead read = isUsual ? start(from, into.remaining()) : null;
        if (read == null) {
            store.readFully(from, into);
        } else {
            read.finish(into);
        }
    }

    /** Ranges of a Parquet or ORC file, for example. All are under way at once, as far as there is memory. */
    @Override
    public void readVectored(List<? extends FileRange> ranges, IntFunction<ByteBuffer> allocate) throws IOException {
        Map<FileRange, PositionRead> reads = new IdentityHashMap<>();
        for (FileRange range : ranges) {
            boolean isUsual = range.getLength() > 0 && range.getOffset() >= 0 && range.getOffset() <= length - range.getLength();
            PositionRead read = isUsual ? start(range.getOffset(), range.getLength()) : null;
            if (read == null) {
                // Small, or unusual, or there is no memory. Hadoop's own way, and its errors.
                reads.values().forEach(PositionRead::stop);
                super.readVectored(ranges, allocate);
                return;
            }
            reads.put(range, read);
        }
        for (FileRange range : ranges) {
            CompletableFuture<ByteBuffer> done = new CompletableFuture<>();
            range.setData(done);
            try {
                ByteBuffer buffer = allocate.apply(range.getLength());
                reads.get(range).finish(buffer);
                buffer.flip();
                done.complete(buffer);
            } catch (IOException | RuntimeException e) {
                reads.get(range).stop();
                done.completeExceptionally(e);
            }
        }
    }

    /** Begins a read by position. Null if Hadoop's stream is to do it. */
    private PositionRead start(long from, int count) {
        if (isPlain || !client.hedges() || settings.isShortCircuit || positionBytes.addAndGet(count) <= HEAD_BYTES) {
            return null;
        }
        locate();
        HdfsStripe.File found = file;
        return found == null ? null : PositionRead.start(found, store, from, count);
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
        return readStore(into, at, (int) Math.min(count, file.map.laneEnd(position) - position));
    }

    /** Sets `current` to the stripe of the position, or to null if Hadoop's stream is to read it. */
    private void enterStripe(int count) {
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
        if (isPlain || !wantsMap(count)) {
            return;
        }
        locate();
        if (isPlain) {
            return;
        }
        long stripe = position / file.map.stripeBytes();
        if (stripe != declinedStripe && (client.isConfigured() || wantsWhole(stripe))) {
            if (isMapOld) {
                isMapOld = false;
                locateAgain();
            }
            current = HdfsStripe.start(file, stripe, wantsWhole(stripe));
            if (current == null) {
                declinedStripe = stripe;
                client.onStripeDeclined(StripeReader.bytesNeeded(client.pieces.pieceBytes()));
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
    private boolean wantsMap(int count) {
        return file != null || settings.isWholeFile || count >= SMALL_BYTES || position - runStart >= HEAD_BYTES;
    }

    /** Whether a reader that comes to this stripe is taken to want all of it. */
    private boolean wantsWhole(long stripe) {
        long begin = Math.max(position, stripe * file.map.stripeBytes());
        long inStripe = begin % file.map.stripeBytes();
        boolean isAtBegin = inStripe <= Math.min(SKIP_BYTES_MAX, file.map.file.blockBytes / 8);
        return isAtBegin && (settings.isWholeFile || begin - runStart >= 2 * file.map.file.blockBytes);
    }

    private void locate() {
        synchronized (locating) {
            if (file != null || isPlain) {
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
                file = new HdfsStripe.File(dfs, conf, statistics, client, found, parity);
            }
        }
    }

    /** The lanes of the next stripe go where the blocks are now, with new tokens. */
    private void locateAgain() {
        try {
            LocatedBlock first = file.map.located.get(0);
            BlockMap found = BlockMap.of(dfs, path, length, first, settings.k, settings.shared.subBytes);
            if (found != null && found.file.version == file.map.file.version) {
                file = new HdfsStripe.File(dfs, conf, statistics, client, found, file.parity);
            }
        } catch (IOException e) {
            // The old one may still do.
        }
    }

    /** Begins the next stripe as soon as this one needs no more bytes, if the reader is known to go on. */
    private void readAhead() {
        long next = current.index + 1;
        if (ahead == null && triedAhead != next && current.endOffset() < length && current.isEnding()) {
            triedAhead = next;
            ahead = HdfsStripe.start(file, next, wantsWhole(next));
        }
    }
}
