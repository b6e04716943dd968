package io.paritas.hadoop;

import io.paritas.files.FileParity;
import io.paritas.files.FilesClient;
import io.paritas.files.StewardClient;
import io.paritas.files.StripeRead;
import io.paritas.files.StripeReader;
import java.io.IOException;
import java.util.BitSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/**
 * What is read of one stripe of a file: its lanes are blocks or internal blocks, its parity is in the cache. A stream reads a
 * stripe with a window ahead of its reader; a read by position wants its range alone.
 */
final class HdfsStripe implements StripeReader.Source {
    /** What a stream reads ahead of its reader, in pieces of each lane that its bytes are in. */
    private static final int WINDOW_SUBS = 4;
    /** Below that, socket buffers hide how fast a node is. */
    private static final long SAMPLE_BYTES_MIN = 4 << 20;

    /** What all reads of a stream share. */
    static final class File {
        final DFSClient dfs;
        final Configuration conf;
        final FileSystem.Statistics statistics;
        final FilesClient client;
        final BlockMap map;
        final FileParity parity;

        File(DFSClient dfs, Configuration conf, FileSystem.Statistics statistics, FilesClient client, BlockMap map,
                FileParity parity) {
            this.dfs = dfs;
            this.conf = conf;
            this.statistics = statistics;
            this.client = client;
            this.map = map;
            this.parity = parity;
        }
    }

    final long index;
    final StripeReader reader;
    private final File file;
    private final FilesClient client;
    private final BlockMap map;
    private final FileParity parity;
    private final int pieceBytes;
    /** A read by position: the one lane, and where in it and in all others the piece begins. Else 0. */
    private final boolean isRange;
    private final int rangeLane;
    private final long base;
    /** Whether all of the stripe is wanted, and not only a window ahead of the reader. */
    private final boolean isWhole;
    private final BitSet written = new BitSet();
    /** Of the lanes of which something was decoded. */
    private final BlockSums[] sums;
    /** Where the reader is, and up to where rows are wanted as a whole. */
    private long position;
    private long toldPiece = -1;
    private int wholeSubs;
    /** Pieces beside the reader's window that were paid for, one bit each: lane, then piece. */
    private final BitSet paid = new BitSet();

    /** The caller has reserved the memory. */
    private HdfsStripe(File file, long index, long[] laneBytes, int pieceBytes, boolean isRange, int rangeLane, long base,
            boolean isWhole) {
        this.file = file;
        client = file.client;
        map = file.map;
        parity = file.parity;
        this.index = index;
        this.pieceBytes = pieceBytes;
        this.isRange = isRange;
        this.rangeLane = rangeLane;
        this.base = base;
        this.isWhole = isWhole;
        position = startOffset();
        sums = new BlockSums[laneBytes.length];
        reader = new StripeReader(laneBytes, pieceBytes, this, client.pieces);
        if (!isRange) {
            parity.onStripe();
        }
        reader.start(client.lanes());
    }

    /** For a stream. `isWhole`: its reader is known to want all of the stripe. Null if there is no memory for it now. */
    static HdfsStripe start(File file, long index, boolean isWhole) {
        int subBytes = file.client.pieces.pieceBytes();
        if (!file.client.pieces.reserve(StripeReader.bytesNeeded(subBytes))) {
            return null;
        }
        if (isWhole) {
            file.client.counters.stripes.incrementAndGet();
        }
        HdfsStripe stripe = new HdfsStripe(file, index, file.map.laneBytes(index), subBytes, false, 0, 0, isWhole);
        stripe.ahead(stripe.position);
        return stripe;
    }

    /** For a read by position, within one block or cell. Null if there is no memory for it now. */
    static HdfsStripe range(File file, long from, int length) {
        if (!file.client.pieces.reserve(StripeReader.bytesNeeded(length))) {
            return null;
        }
        long index = from / file.map.stripeBytes();
        long inStripe = from % file.map.stripeBytes();
        long base = file.map.laneOffset(inStripe);
        long[] laneBytes = file.map.laneBytes(index);
        for (int lane = 0; lane < laneBytes.length; lane++) {
            laneBytes[lane] = Math.max(0, Math.min(length, laneBytes[lane] - base));
        }
        int lane = file.map.lane(inStripe);
        HdfsStripe range = new HdfsStripe(file, index, laneBytes, length, true, lane, base, false);
        range.reader.want(lane, 0, 0);
        return range;
    }

    long startOffset() {
        return index * map.stripeBytes();
    }

    long endOffset() {
        return Math.min(map.file.length, (index + 1) * map.stripeBytes());
    }

    boolean covers(long target) {
        return target >= startOffset() && target < endOffset();
    }

    /** Whether a reader that goes on there is still served by what was read ahead. */
    boolean reaches(long target) {
        return covers(target) && (isWhole || target >= position && target <= position + windowBytes());
    }

    /** Whether the next stripe should be begun: this one needs no more bytes, and the reader comes near its end. */
    boolean isEnding() {
        return (isWhole && wholeSubs == reader.subs() || position + windowBytes() >= endOffset()) && reader.isSatisfied();
    }

    /** Whether the reader will have all of the stripe at once, as its parity needs. Of a striped file it needs a row alone. */
    boolean isAllWanted() {
        return map.isStriped || wholeSubs == reader.subs();
    }

    private long windowBytes() {
        return (long) WINDOW_SUBS * pieceBytes * (map.isStriped ? map.file.k : 1);
    }

    /** As {@link StripeReader#read}, by position in the file. */
    int read(long from, byte[] into, int at, int length) throws IOException {
        ahead(from);
        long inStripe = from - startOffset();
        int done = reader.read(map.lane(inStripe), map.laneOffset(inStripe), into, at, length);
        if (done > 0) {
            position = from + done;
            onDelivered(done);
        }
        return done;
    }

    /** All bytes of a read by position. False if they are to be read from the store. */
    boolean readRange(byte[] into, int at) throws IOException {
        boolean done = reader.read(rangeLane, 0, into, at, pieceBytes) == pieceBytes;
        if (done) {
            onDelivered(pieceBytes);
        }
        return done;
    }

    private void onDelivered(int bytes) {
        client.counters.deliveredBytes.addAndGet(bytes);
        client.hedgeBudget.onRead(bytes);
        file.statistics.incrementBytesRead(bytes);
        if (map.isStriped) {
            file.statistics.incrementBytesReadErasureCoded(bytes);
        }
    }

    /** Wants what a reader at this place will read next. */
    private void ahead(long from) {
        if (from / pieceBytes == toldPiece && from >= position) {
            return;
        }
        toldPiece = from / pieceBytes;
        passTo(from);
        long inStripe = from - startOffset();
        int lane = map.lane(inStripe);
        int sub = (int) (map.laneOffset(inStripe) / pieceBytes);
        long spare = (long) StripeRead.ROWS_MAX * (map.file.k + 1) * pieceBytes + windowBytes();
        if (isWhole && !map.isStriped) {
            while (wholeSubs < reader.subs() && wantRow(wholeSubs, wholeSubs < sub ? lane + 1 : lane, spare)) {
                wholeSubs++;
            }
        } else if (!map.isStriped && reader.isAnyLate()) {
            wantBeside(lane, Math.min(reader.subs(), sub + WINDOW_SUBS), spare);
        }
        long end = Math.min(endOffset(), from + windowBytes());
        for (long next = from; next < end; next = map.pieceEnd(next, pieceBytes)) {
            long place = next - startOffset();
            // One row can be reconstructed beside what is read ahead.
            long free = next == from ? 0 : (map.file.k + 1L) * pieceBytes;
            if (!reader.want(map.lane(place), (int) (map.laneOffset(place) / pieceBytes), free)) {
                break;
            }
        }
    }

    private boolean wantRow(int sub, int firstLane, long spare) {
        long[] bytes = map.laneBytes(index);
        for (int lane = firstLane; lane < bytes.length; lane++) {
            if ((long) sub * pieceBytes < bytes[lane] && !reader.want(lane, sub, spare)) {
                return false;
            }
        }
        return true;
    }

    /**
     * While a node is late, the other blocks of the stripe are read beside this one, as far as the reader has come in its own: the
     * late one needs them, and the reader will mostly come to them. If it does not, they have cost something.
     */
    private void wantBeside(int ownLane, int end, long spare) {
        long[] bytes = map.laneBytes(index);
        for (; wholeSubs < end; wholeSubs++) {
            for (int lane = ownLane + 1; lane < bytes.length; lane++) {
                int bit = lane * reader.subs() + wholeSubs;
                if ((long) wholeSubs * pieceBytes >= bytes[lane] || paid.get(bit)) {
                    continue;
                }
                // What a reconstruction has brought is paid for.
                boolean isFree = reader.has(lane, wholeSubs);
                if (!isFree && !client.mayReadAhead(pieceBytes, slowNode())) {
                    return;
                }
                if (!reader.want(lane, wholeSubs, spare)) {
                    client.hedgeBudget.onGrant(isFree ? 0 : pieceBytes);
                    return;
                }
                paid.set(bit, !isFree);
            }
        }
    }

    private String slowNode() {
        for (int lane = 0; lane < sums.length; lane++) {
            String node = map.readNode(index, lane, client);
            if (node != null && client.isSlow(node)) {
                return node;
            }
        }
        return null;
    }

    /** The reader goes on there: what it skips is not wanted, and what it has read was not read in vain. */
    private void passTo(long from) {
        for (long at = position; at < from; at = map.pieceEnd(at, pieceBytes)) {
            long place = at - startOffset();
            int lane = map.lane(place);
            int sub = (int) (map.laneOffset(place) / pieceBytes);
            if (map.pieceEnd(at, pieceBytes) <= from && reader.wants(lane, sub)) {
                reader.pass(lane, sub);
            }
        }
        long before = Math.max(startOffset(), from - 1) - startOffset();
        int bit = map.lane(before) * reader.subs() + (int) (map.laneOffset(before) / pieceBytes);
        if (paid.get(bit)) {
            paid.clear(bit);
            client.hedgeBudget.onGrant(pieceBytes);
        }
        position = Math.max(position, from);
    }

    void stop() {
        if (isWhole && reader.isWhole()) {
            client.counters.wholeStripes.incrementAndGet();
        }
        if (isWhole && !isAllWanted() && parity.shouldCache()) {
            client.onStripeDeclined((long) reader.subs() * pieceBytes * sums.length);
        }
        reader.stop();
    }

    @Override
    public StripeReader.Lane open(int lane) throws IOException {
        if (map.isStriped) {
            LocatedBlock block = map.internalBlock(index, lane);
            if (block == null) {
                throw new IOException("no DataNode has internal block " + lane + " of group " + index);
            }
            return new InternalBlockLane(
                    file.dfs, file.conf, map.file.path, block, base, isRange ? pieceBytes : Long.MAX_VALUE,
                    client.counters.dataBytes, file.statistics);
        }
        return new HdfsLane(
                file.dfs, client, map, (int) (index * map.file.k) + lane, base, isRange, client.counters.dataBytes,
                file.statistics);
    }

    @Override
    public boolean isDecided() {
        return parity.isDecided();
    }

    @Override
    public boolean hasParity() {
        boolean isCached = parity.isCached();
        if (parity.shouldCache() && !isRange) {
            BitSet ready = reader.readySubs();
            for (int sub = ready.nextSetBit(0); sub >= 0; sub = ready.nextSetBit(sub + 1)) {
                onReady(sub);
            }
        }
        return isCached;
    }

    @Override
    public boolean wantsParityFor(int lane) {
        return client.wantsParityFor(map.readNode(index, lane, client));
    }

    @Override
    public boolean isBetterElsewhere(int lane, String node) {
        return client.isSlow(node) && !client.isSlow(map.readNode(index, lane, client));
    }

    @Override
    public boolean parity(int sub, byte[] into, int length) {
        if (!isRange) {
            return parity.fetch(index, sub, into, length);
        }
        int subBytes = client.pieces.pieceBytes();
        byte[] piece = client.pieces.take();
        try {
            long laneBytes = map.laneBytes(index)[0];
            for (int done = 0; done < length; ) {
                int number = (int) ((base + done) / subBytes);
                int from = (int) ((base + done) % subBytes);
                int there = (int) Math.min(subBytes, laneBytes - (long) number * subBytes);
                if (!parity.fetch(index, number, piece, there)) {
                    return false;
                }
                int count = Math.min(length - done, there - from);
                System.arraycopy(piece, from, into, done, count);
                done += count;
            }
            return true;
        } finally {
            client.pieces.give(piece);
        }
    }

    @Override
    public StripeReader.Verdict check(int lane, int sub, byte[] bytes, int length) {
        BlockSums of = null;
        // HDFS tells checksums of whole subblocks alone.
        if (!isRange) {
            synchronized (sums) {
                if (sums[lane] == null) {
                    LocatedBlock block = map.isStriped
                            ? map.internalBlock(index, lane) : map.located.get((int) (index * map.file.k) + lane);
                    sums[lane] = block == null ? null : new BlockSums(file.dfs, client, block);
                }
                of = sums[lane];
            }
        }
        StripeReader.Verdict verdict = of == null ? StripeReader.Verdict.UNKNOWN : of.check(sub, bytes, length);
        if (verdict == StripeReader.Verdict.WRONG) {
            client.counters.wrongDecodes.incrementAndGet();
            parity.onBadParity();
        } else if (verdict == StripeReader.Verdict.UNKNOWN) {
            client.counters.uncheckedBytes.addAndGet(length);
        }
        return verdict;
    }

    @Override
    public void onReady(int sub) {
        if (isRange || !parity.shouldCache()) {
            return;
        }
        synchronized (written) {
            if (written.get(sub)) {
                return;
            }
            written.set(sub);
        }
        parity.write(index, sub, reader);
    }

    @Override
    public void onRead(int bytes, long ns) {
        client.latencies.onRead(bytes, ns);
    }

    @Override
    public long lateNs() {
        return client.lateNs(pieceBytes);
    }

    @Override
    public boolean mayRead(int lane, long bytes, boolean must) {
        return client.mayRead(bytes, map.readNode(index, lane, client), must);
    }

    @Override
    public void notRead(long bytes) {
        client.hedgeBudget.onGrant(bytes);
    }

    @Override
    public void onSample(String node, long bytes, long ns, boolean cancelled) {
        if (!isRange && (bytes >= SAMPLE_BYTES_MIN || cancelled)) {
            client.sample(new StewardClient.Sample(node, bytes, ns, cancelled));
        }
    }

    @Override
    public void onDecoded(int bytes) {
        client.counters.decodedBytes.addAndGet(bytes);
        if (isRange) {
            client.counters.hedgeWins.incrementAndGet();
        }
    }

    @Override
    public void onGone() {
        if (!isRange) {
            parity.onStripeGone();
        }
    }
}
