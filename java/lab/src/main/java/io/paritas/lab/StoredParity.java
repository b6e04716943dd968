package io.paritas.lab;

import io.paritas.files.Pieces;
import io.paritas.files.StripeReader;
import java.io.IOException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.HdfsLocatedFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedStripedBlock;
import org.apache.hadoop.hdfs.util.StripedBlockUtil;

/** Reads a striped file with the parity that HDFS stores of it, all at once. One block group after the other. */
final class StoredParity implements WholeRead {
    private static final long MEMORY_BYTES = 512 << 20;

    private final DistributedFileSystem fs;
    private final ExecutorService threads = Executors.newCachedThreadPool(work -> {
        Thread thread = new Thread(work, "lab-lane");
        thread.setDaemon(true);
        return thread;
    });
    private Pieces pieces;

    StoredParity(DistributedFileSystem fs) {
        this.fs = fs;
    }

    @Override
    public int read(Path path, byte[] into) throws IOException {
        DFSClient dfs = fs.getClient();
        String name = path.toUri().getPath();
        HdfsLocatedFileStatus status = dfs.getLocatedFileInfo(name, true);
        ErasureCodingPolicy policy = status.getErasureCodingPolicy();
        if (policy == null || !policy.getCodecName().equals("xor")) {
            throw new IOException(path + " has no policy whose parity is an XOR");
        }
        int cell = policy.getCellSize();
        int k = policy.getNumDataUnits();
        if (pieces == null || pieces.pieceBytes() != cell) {
            pieces = new Pieces(cell, MEMORY_BYTES);
        }
        for (LocatedBlock group : status.getLocatedBlocks().getLocatedBlocks()) {
            LocatedBlock[] units = StripedBlockUtil.parseStripedBlockGroup(
                    (LocatedStripedBlock) group, cell, k, policy.getNumParityUnits());
            long[] bytes = new long[k];
            for (int lane = 0; lane < k; lane++) {
                bytes[lane] = StripedBlockUtil.getInternalBlockLength(group.getBlockSize(), cell, k, lane);
            }
            if (!pieces.reserve(StripeReader.bytesNeeded(cell))) {
                throw new IOException("a block group does not fit in memory");
            }
            Units source = new Units(dfs, fs.getConf(), name, units, k, cell);
            StripeReader reader = new StripeReader(bytes, cell, source, pieces);
            try {
                reader.start(threads);
                for (int sub = 0; sub < reader.subs(); sub++) {
                    for (int lane = 0; lane < k; lane++) {
                        if ((long) sub * cell < bytes[lane] && !reader.want(lane, sub, 0)) {
                            throw new IOException("a block group does not fit in memory");
                        }
                    }
                }
                copy(reader, group, k, cell, into);
            } finally {
                reader.stop();
            }
        }
        return 0;
    }

    private static void copy(StripeReader reader, LocatedBlock group, int k, int cell, byte[] into) throws IOException {
        for (long done = 0; done < group.getBlockSize(); ) {
            int lane = (int) (done / cell % k);
            int inCell = (int) (done % cell);
            long offset = done / cell / k * cell + inCell;
            int wanted = (int) Math.min(cell - inCell, group.getBlockSize() - done);
            int count = reader.read(lane, offset, into, (int) (group.getStartOffset() + done), wanted);
            if (count == StripeReader.LOST) {
                throw new IOException("unit " + lane + " can't be read");
            }
            done += count;
        }
    }

    /** The units of a block group; the first parity unit stands for the cache. */
    private static final class Units implements StripeReader.Source {
        private final DFSClient dfs;
        private final Configuration conf;
        private final String path;
        private final LocatedBlock[] units;
        private final int k;
        private final int cell;
        private ReplicaRead parity;

        Units(DFSClient dfs, Configuration conf, String path, LocatedBlock[] units, int k, int cell) {
            this.dfs = dfs;
            this.conf = conf;
            this.path = path;
            this.units = units;
            this.k = k;
            this.cell = cell;
        }

        @Override
        public StripeReader.Lane open(int lane) throws IOException {
            if (units[lane] == null) {
                throw new IOException("no DataNode has unit " + lane);
            }
            return new ReplicaRead(dfs, conf, path, units[lane], 0);
        }

        @Override
        public boolean hasParity() {
            return units[k] != null;
        }

        /** All units are asked at once, whichever is slow. */
        @Override
        public boolean wantsParityFor(int lane) {
            return true;
        }

        @Override
        public boolean parity(int sub, byte[] into, int length) {
            try {
                if (parity == null) {
                    parity = new ReplicaRead(dfs, conf, path, units[k], 0);
                }
                parity.read((long) sub * cell, into, length);
                return true;
            } catch (IOException e) {
                return false;
            }
        }

        @Override
        public void onReady(int sub) {
            // HDFS has the parity.
        }

        @Override
        public void onSample(String node, long bytes, long ns, boolean cancelled) {
            // Nobody estimates.
        }

        @Override
        public void onDecoded(int bytes) {
            // Not counted.
        }

        @Override
        public void onGone() {
            if (parity != null) {
                try {
                    parity.close();
                } catch (IOException e) {
                    // It was read from only.
                }
            }
        }
    }
}
