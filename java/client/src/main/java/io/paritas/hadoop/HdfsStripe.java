package io.paritas.hadoop;

import io.paritas.files.FileParity;
import io.paritas.files.FilesClient;
import io.paritas.files.StewardClient;
import io.paritas.files.StripeReader;
import java.io.IOException;
import java.util.BitSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/** One stripe of a file that is being read: its lanes are blocks or internal blocks, its parity is in the cache. */
final class HdfsStripe implements StripeReader.Source {
    /** Below that, socket buffers hide how fast a node is. */
    private static final long SAMPLE_BYTES_MIN = 4 << 20;

    final long index;
    final StripeReader reader;
    private final DFSClient dfs;
    private final Configuration conf;
    private final FileSystem.Statistics statistics;
    private final FilesClient client;
    private final BlockMap map;
    private final FileParity parity;
    private final BitSet written = new BitSet();
    /** Of the lanes of which something was decoded. */
    private final BlockSums[] sums;

    /** The caller has reserved the memory. */
    private HdfsStripe(DFSClient dfs, Configuration conf, FileSystem.Statistics statistics, FilesClient client, BlockMap map,
            FileParity parity, long index, long[] laneBytes) {
        this.statistics = statistics;
        this.dfs = dfs;
        this.conf = conf;
        this.client = client;
        this.map = map;
        this.parity = parity;
        this.index = index;
        sums = new BlockSums[laneBytes.length];
        reader = new StripeReader(laneBytes, this, client.pieces);
    }

    /** Null if there is no memory, or there are no threads, for it now. */
    static HdfsStripe start(
            DFSClient dfs, Configuration conf, FileSystem.Statistics statistics, FilesClient client, BlockMap map,
            FileParity parity, long index) {
        long[] laneBytes = map.laneBytes(index);
        if (!client.pieces.reserve(StripeReader.bytesNeeded(laneBytes, client.pieces.pieceBytes()))) {
            return null;
        }
        HdfsStripe stripe = new HdfsStripe(dfs, conf, statistics, client, map, parity, index, laneBytes);
        parity.onStripe();
        if (!stripe.reader.start(client.lanes())) {
            stripe.reader.stop();
            return null;
        }
        client.counters.stripes.incrementAndGet();
        return stripe;
    }

    /** The memory of a stripe. */
    static long bytesNeeded(FilesClient client, BlockMap map, long index) {
        return StripeReader.bytesNeeded(map.laneBytes(index), client.pieces.pieceBytes());
    }

    long startOffset() {
        return index * map.stripeBytes();
    }

    long endOffset() {
        return Math.min(map.file.length, (index + 1) * map.stripeBytes());
    }

    boolean covers(long position) {
        return position >= startOffset() && position < endOffset();
    }

    /** As {@link StripeReader#read}, by position in the file. */
    int read(long position, byte[] into, int at, int length) throws IOException {
        long inStripe = position - startOffset();
        int done = reader.read(map.lane(inStripe), map.laneOffset(inStripe), into, at, length);
        if (done > 0) {
            client.counters.deliveredBytes.addAndGet(done);
            statistics.incrementBytesRead(done);
            if (map.isStriped) {
                statistics.incrementBytesReadErasureCoded(done);
            }
        }
        return done;
    }

    void stop() {
        if (reader.isWhole()) {
            client.counters.wholeStripes.incrementAndGet();
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
            return new InternalBlockLane(dfs, conf, map.file.path, block, client.counters.dataBytes, statistics);
        }
        return new HdfsLane(dfs, map, (int) (index * map.file.k) + lane, client.counters.dataBytes, statistics);
    }

    @Override
    public boolean hasParity() {
        boolean isCached = parity.isCached();
        if (parity.shouldCache()) {
            BitSet ready = reader.readySubs();
            for (int sub = ready.nextSetBit(0); sub >= 0; sub = ready.nextSetBit(sub + 1)) {
                onReady(sub);
            }
        }
        return isCached;
    }

    @Override
    public boolean wantsParityFor(int lane) {
        int place = (int) (index * map.file.k) + lane;
        return place < map.file.nodes.size() && client.wantsParityFor(map.file.nodes.get(place));
    }

    @Override
    public boolean parity(int sub, byte[] into, int length) {
        return parity.fetch(index, sub, into, length);
    }

    @Override
    public StripeReader.Verdict check(int lane, int sub, byte[] bytes, int length) {
        BlockSums of;
        synchronized (sums) {
            if (sums[lane] == null) {
                LocatedBlock block = map.isStriped
                        ? map.internalBlock(index, lane) : map.located.get((int) (index * map.file.k) + lane);
                sums[lane] = block == null ? null : new BlockSums(dfs, client, block);
            }
            of = sums[lane];
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
        if (!parity.shouldCache()) {
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
    public void onSample(String node, long bytes, long ns, boolean cancelled) {
        if (bytes >= SAMPLE_BYTES_MIN || cancelled) {
            client.sample(new StewardClient.Sample(node, bytes, ns, cancelled));
        }
    }

    @Override
    public void onDecoded(int bytes) {
        client.counters.decodedBytes.addAndGet(bytes);
    }

    @Override
    public void onGone() {
        parity.onStripeGone();
    }
}
