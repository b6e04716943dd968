package io.paritas.hadoop;

import io.paritas.files.FileParity;
import io.paritas.files.FilesClient;
import io.paritas.files.Hedge;
import io.paritas.files.ParityValue;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.DFSClient;

/** Drives a {@link Hedge} for a read by position, within one block. The reader waits; the bytes come in other threads. */
final class HedgedRead implements Hedge.Out {
    /** The bytes of the stream below. */
    interface Store {
        /** Fills the buffer. */
        void read(byte[] into) throws IOException;
    }

    private static final long NOT_NULL_TIMEOUT_NS = TimeUnit.MILLISECONDS.toNanos(1);

    private final DFSClient dfs;
    private final FileSystem.Statistics statistics;
    private final FilesClient client;
    private final BlockMap map;
    private final FileParity parity;
    private final int block;
    private final long offset;
    private final int length;
    private final Store store;
    private final Hedge machine;
    private FutureTask<byte[]> asked;
    private FutureTask<byte[]> spare;
    private byte[] result;
    private IOException error;

    HedgedRead(DFSClient dfs, FileSystem.Statistics statistics, FilesClient client, BlockMap map, FileParity parity, int block,
            long offset, int length, Store store) {
        this.statistics = statistics;
        this.dfs = dfs;
        this.client = client;
        this.map = map;
        this.parity = parity;
        this.block = block;
        this.offset = offset;
        this.length = length;
        this.store = store;
        boolean isSlow = client.isSlow(map.file.nodes.get(block));
        machine = new Hedge(
                costBytes(), isSlow, client.latencies.medianNs(length), client.hedgeBudget, client.rates);
    }

    /** What a reconstruction reads: the range in the other blocks, and whole parity subblocks. */
    private long costBytes() {
        int sub = client.settings.subBytes;
        long subs = (offset + length - 1) / sub - offset / sub + 1;
        return (long) (others() - 1) * length + subs * sub;
    }

    /** Data blocks of the stripe. */
    private int others() {
        return map.laneBytes(block / map.file.k).length;
    }

    /** Memory that one read takes, wherever its bytes come from. */
    long memoryBytes() {
        return 2L * length + costBytes();
    }

    /** Null if there are no threads for it: then the reader asks the store itself. */
    byte[] run() throws IOException {
        try {
            on(Hedge.Kind.START);
            while (!machine.isOver()) {
                step();
            }
        } catch (RejectedExecutionException e) {
            cancel(asked);
            cancel(spare);
            return null;
        } catch (InterruptedException e) {
            cancel(asked);
            cancel(spare);
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while it waited for a read by position");
        }
        if (result == null) {
            throw error;
        }
        statistics.incrementBytesRead(length);
        return result;
    }

    private void on(Hedge.Kind kind) {
        machine.on(System.nanoTime(), kind, this);
    }

    /** Waits for what happens next. */
    private synchronized void step() throws InterruptedException {
        if (isDone(asked)) {
            try {
                result = asked.get();
                asked = null;
                on(Hedge.Kind.ARRIVED);
            } catch (ExecutionException e) {
                asked = null;
                error = failure(e);
                on(Hedge.Kind.FAILED);
            }
        } else if (isDone(spare)) {
            try {
                byte[] bytes = spare.get();
                spare = null;
                result = bytes;
                on(bytes == null ? Hedge.Kind.NOT_RECONSTRUCTED : Hedge.Kind.RECONSTRUCTED);
            } catch (ExecutionException e) {
                spare = null;
                on(Hedge.Kind.NOT_RECONSTRUCTED);
            }
        } else if (machine.nextDeadline() == Hedge.NEVER) {
            wait();
        } else {
            long ns = machine.nextDeadline() - System.nanoTime();
            if (ns > 0) {
                TimeUnit.NANOSECONDS.timedWait(this, Math.max(ns, NOT_NULL_TIMEOUT_NS));
            }
            on(Hedge.Kind.TICK);
        }
    }

    private static boolean isDone(Future<?> task) {
        return task != null && task.isDone();
    }

    private static IOException failure(ExecutionException e) {
        return e.getCause() instanceof IOException ? (IOException) e.getCause() : new IOException(e.getCause());
    }

    private static void cancel(Future<?> task) {
        if (task != null) {
            task.cancel(true);
        }
    }

    private FutureTask<byte[]> start(Callable<byte[]> work) {
        FutureTask<byte[]> task = new FutureTask<byte[]>(work) {
            @Override
            protected void done() {
                synchronized (HedgedRead.this) {
                    HedgedRead.this.notifyAll();
                }
            }
        };
        client.lanes().execute(task);
        return task;
    }

    @Override
    public void ask() {
        asked = start(() -> {
            byte[] bytes = new byte[length];
            long startNs = System.nanoTime();
            store.read(bytes);
            // Hadoop's stream has counted them for this thread; they are the reader's.
            statistics.incrementBytesRead(-length);
            long ns = System.nanoTime() - startNs;
            client.latencies.onRead(length, ns);
            client.rates.onSample(System.nanoTime(), map.file.nodes.get(block), length, ns);
            return bytes;
        });
    }

    @Override
    public void reconstruct() {
        client.counters.hedges.incrementAndGet();
        client.counters.hedgeBytes.addAndGet(costBytes());
        spare = start(this::reconstructed);
    }

    @Override
    public void cancelAsked() {
        cancel(asked);
    }

    @Override
    public void cancelReconstruction() {
        cancel(spare);
    }

    @Override
    public void done(boolean isReconstructed) {
        client.hedgeBudget.onRead(length);
        if (isReconstructed) {
            client.counters.hedgeWins.incrementAndGet();
            // The range is no whole subblock, of which alone HDFS tells checksums.
            client.counters.uncheckedBytes.addAndGet(length);
        }
    }

    @Override
    public void failed() {
        // `run` throws the node's error.
    }

    @Override
    public void declined() {
        client.counters.hedgesDeclined.incrementAndGet();
    }

    @Override
    public void wantsBudget() {
        // The machine looks again soon.
        client.wantCredit(costBytes(), map.file.nodes.get(block));
    }

    /** Null if there is no parity. Other blocks that can't be read are an error. */
    private byte[] reconstructed() throws IOException, ExecutionException, InterruptedException {
        if (!parity.isCached()) {
            return null;
        }
        int first = block - block % map.file.k;
        int lanes = others();
        List<FutureTask<byte[]>> others = new ArrayList<>();
        boolean done = false;
        try {
            for (int lane = 0; lane < lanes; lane++) {
                if (first + lane != block) {
                    int other = first + lane;
                    others.add(start(() -> range(other)));
                }
            }
            byte[] sum = parityRange(first, lanes);
            if (sum == null) {
                return null;
            }
            for (FutureTask<byte[]> other : others) {
                byte[] bytes = other.get();
                ParityValue.xor(sum, bytes, bytes.length);
            }
            done = true;
            return sum;
        } finally {
            if (!done) {
                others.forEach(HedgedRead::cancel);
            }
        }
    }

    /** The range in another block, as far as the block goes. */
    private byte[] range(int other) throws IOException {
        long there = map.located.get(other).getBlockSize() - offset;
        byte[] bytes = new byte[(int) Math.max(0, Math.min(length, there))];
        if (bytes.length > 0) {
            try (HdfsLane lane = new HdfsLane(dfs, map, other, client.counters.dataBytes, statistics)) {
                lane.readAlone(offset, bytes, bytes.length);
            }
        }
        return bytes;
    }

    private byte[] parityRange(int first, int lanes) {
        int subBytes = client.settings.subBytes;
        long stripeRow = map.located.get(first).getBlockSize();
        byte[] sum = new byte[length];
        byte[] piece = client.pieces.take();
        try {
            for (int done = 0; done < length; ) {
                int sub = (int) ((offset + done) / subBytes);
                int from = (int) ((offset + done) % subBytes);
                int wanted = (int) Math.min(subBytes, stripeRow - (long) sub * subBytes);
                if (!parity.fetch(block / map.file.k, sub, piece, wanted)) {
                    return null;
                }
                int count = Math.min(length - done, wanted - from);
                System.arraycopy(piece, from, sum, done, count);
                done += count;
            }
            return sum;
        } finally {
            client.pieces.give(piece);
        }
    }
}
