package io.paritas.files;

import java.io.Closeable;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;

/**
 * Drives a {@link StripeRead}: one thread for each lane, and the memory of the stripe.
 *
 * <p>The reader waits in {@link #read} and takes bytes of a subblock as soon as they are there. Memory goes back when the last
 * thread that uses it has ended.
 */
public final class StripeReader implements StripeRead.Out {
    /** A data block. Used by one thread. */
    public interface Lane extends Closeable {
        /** Reads all these bytes of the block, or fails. */
        void read(long offset, byte[] into, int length) throws IOException;

        /** The node that serves reads, or will be asked first; null if it is not known. */
        String node();

        /** Whether an interrupt ends a read and harms nobody else. */
        boolean isInterruptible();
    }

    /** What the store says of bytes that were decoded. */
    public enum Verdict {
        RIGHT,
        WRONG,
        /** It could not be asked, or has not answered in time. */
        UNKNOWN
    }

    /** Where lanes and parity come from, and what is told of the read. Called without locks held. */
    public interface Source {
        Lane open(int lane) throws IOException;

        /** Waits for what the cache has. Whether there may be parity for this stripe. */
        boolean hasParity();

        /** Whether parity is wanted ahead because of this data lane: its node is known to be slow. Asked after `hasParity`. */
        boolean wantsParityFor(int lane);

        /** Gets a parity subblock of at least `length` bytes. False if it is absent or damaged. */
        boolean parity(int sub, byte[] into, int length);

        /** Compares what was decoded of a data lane with what the store knows of it. */
        default Verdict check(int lane, int sub, byte[] bytes, int length) {
            return Verdict.UNKNOWN;
        }

        /** All data of the subblock is there: call {@link #encode} in another thread if its parity is wanted. */
        void onReady(int sub);

        void onSample(String node, long bytes, long ns, boolean cancelled);

        void onDecoded(int bytes);

        /** The last user of the stripe's memory has gone. */
        void onGone();
    }

    /** The answer of {@link #read}: this data is to be read from the store itself. */
    public static final int LOST = -1;

    private static final int NOTHING = -1;
    private static final long TOLD_AGAIN_MS = StripeRead.BEHIND_NS / 1_000_000;

    private final Source source;
    private final Pieces pieces;
    private final StripeRead machine;
    private final long[] laneBytes;
    private final int subBytes;
    private final int k;
    private final byte[][][] data;
    private final byte[][] parity;
    private final int[] asked;
    private final boolean[] cancelled;
    private final Thread[] reading;
    private final String[] nodes;
    /** Lanes whose thread waits for a request, and readers that wait for a lane: others need not be woken. */
    private final boolean[] idle;
    private final int[] waiting;
    private final Deque<Runnable> later = new ArrayDeque<>();
    private final long reservedBytes;
    private int users;

    /** The caller has reserved `bytesNeeded` in `pieces`; it goes back when the read is over. */
    public StripeReader(long[] laneBytes, Source source, Pieces pieces) {
        this.laneBytes = laneBytes;
        this.source = source;
        this.pieces = pieces;
        subBytes = pieces.pieceBytes();
        machine = new StripeRead(laneBytes, subBytes);
        k = laneBytes.length;
        data = new byte[k][machine.subs()][];
        parity = new byte[machine.subs()][];
        asked = new int[k + 1];
        java.util.Arrays.fill(asked, NOTHING);
        cancelled = new boolean[k + 1];
        reading = new Thread[k + 1];
        nodes = new String[k + 1];
        idle = new boolean[k + 1];
        waiting = new int[k];
        reservedBytes = bytesNeeded(laneBytes, subBytes);
        users = 1;
    }

    /** All data, the parity's lead, and what each lane may have in flight beside it. */
    public static long bytesNeeded(long[] laneBytes, int subBytes) {
        long bytes = (long) (laneBytes.length + StripeRead.PARITY_LEAD + 1) * subBytes;
        for (long each : laneBytes) {
            bytes += (each + subBytes - 1) / subBytes * subBytes;
        }
        return bytes;
    }

    /** False if there are no threads for it: then the stripe is to be read from the store, and `stop` called. */
    public boolean start(Executor threads) {
        int started = 0;
        try {
            for (; started <= k; started++) {
                int lane = started;
                synchronized (this) {
                    users++;
                }
                threads.execute(() -> run(lane));
            }
        } catch (RejectedExecutionException | OutOfMemoryError e) {
            // The system may have no thread left, of which Java says that there is no memory.
            leave();
            return false;
        }
        on(StripeRead.Kind.START, 0, 0, 0);
        return true;
    }

    /**
     * Copies bytes from `offset` of data lane `lane` on, as many as its subblock has. Waits for them. {@link #LOST} if the lane
     * can't give them.
     */
    public int read(int lane, long offset, byte[] into, int at, int length) throws IOException {
        int sub = (int) (offset / subBytes);
        int from = (int) (offset % subBytes);
        byte[] piece = null;
        while (piece == null) {
            if (!isThere(lane, offset)) {
                // If the parity can stand for a lane that is late, this thread decodes.
                on(StripeRead.Kind.WANTED, lane, sub, 0);
            }
            synchronized (this) {
                if (data[lane][sub] == null) {
                    if (machine.isLost(lane) || machine.isOver()) {
                        return LOST;
                    }
                    awaitData(lane);
                }
                piece = data[lane][sub];
            }
        }
        int count = Math.min(length, length(lane, sub) - from);
        System.arraycopy(piece, from, into, at, count);
        return count;
    }

    /** Waits until something of the lane has changed, or the machine is to be told again that it is waited for. */
    private void awaitData(int lane) throws InterruptedIOException {
        waiting[lane]++;
        try {
            wait(TOLD_AGAIN_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while it waited for a stripe");
        } finally {
            waiting[lane]--;
        }
    }

    /** Whether a read of these bytes would not wait. */
    public synchronized boolean isThere(int lane, long offset) {
        return data[lane][(int) (offset / subBytes)] != null;
    }

    public synchronized boolean isWhole() {
        return machine.isWhole();
    }

    /** Whether no more bytes are needed of any lane. */
    public synchronized boolean isCovered() {
        return machine.isCovered();
    }

    public int subs() {
        return machine.subs();
    }

    /** Writes the subblock's parity into `into`, so that it can be written to the cache. Returns its length. */
    public int encode(int sub, byte[] into) {
        int length = parityLength(sub);
        java.util.Arrays.fill(into, 0, length, (byte) 0);
        for (int lane = 0; lane < k; lane++) {
            byte[] piece;
            synchronized (this) {
                piece = data[lane][sub];
            }
            if (piece != null) {
                ParityValue.xor(into, piece, length(lane, sub));
            }
        }
        return length;
    }

    /** Subblocks that are ready by now. */
    public synchronized java.util.BitSet readySubs() {
        java.util.BitSet ready = new java.util.BitSet();
        for (int sub = 0; sub < machine.subs(); sub++) {
            ready.set(sub, machine.isReady(sub));
        }
        return ready;
    }

    /** Keeps the memory until `leave`. False if the read has ended. */
    public synchronized boolean enter() {
        if (users == 0) {
            return false;
        }
        users++;
        return true;
    }

    public void leave() {
        synchronized (this) {
            if (--users > 0) {
                return;
            }
        }
        for (byte[][] lane : data) {
            giveAll(lane);
        }
        giveAll(parity);
        pieces.release(reservedBytes);
        source.onGone();
    }

    /** The reader has gone. Called once. */
    public void stop() {
        on(StripeRead.Kind.STOP, 0, 0, 0);
        leave();
    }

    private void giveAll(byte[][] several) {
        for (int i = 0; i < several.length; i++) {
            if (several[i] != null) {
                pieces.give(several[i]);
                several[i] = null;
            }
        }
    }

    private int length(int lane, int sub) {
        return (int) Math.max(0, Math.min(subBytes, laneBytes[lane] - (long) sub * subBytes));
    }

    private int parityLength(int sub) {
        int length = 0;
        for (int lane = 0; lane < k; lane++) {
            length = Math.max(length, length(lane, sub));
        }
        return length;
    }

    private void on(StripeRead.Kind kind, int lane, int sub, long count) {
        synchronized (this) {
            machine.on(System.nanoTime(), kind, lane, sub, count, this);
        }
        workOff();
    }

    /**
     * What the machine has asked for that must not hold the lock. Its failures must not end the lane whose thread does it: the
     * machine would wait for that lane.
     */
    private void workOff() {
        while (true) {
            Runnable work;
            synchronized (this) {
                work = later.pollFirst();
            }
            if (work == null) {
                return;
            }
            try {
                work.run();
            } catch (Throwable e) {
                // Then the subblock has no parity, or the steward no sample.
                continue;
            }
        }
    }

    // What the machine asks for. The lock is held.

    @Override
    public void fetch(int lane, int sub) {
        asked[lane] = sub;
        if (idle[lane]) {
            notifyAll();
        }
    }

    @Override
    public void cancel(int lane) {
        cancelled[lane] = true;
        asked[lane] = NOTHING;
        if (reading[lane] != null) {
            reading[lane].interrupt();
        }
        notifyAll();
    }

    @Override
    public void decode(int sub, int lane) {
        users++;
        later.addLast(() -> {
            try {
                decodeNow(sub, lane);
            } finally {
                leave();
            }
        });
    }

    @Override
    public void ready(int sub) {
        if (parity[sub] != null) {
            // All lanes were in time.
            pieces.give(parity[sub]);
            parity[sub] = null;
        }
        later.addLast(() -> source.onReady(sub));
    }

    @Override
    public void lost(int lane) {
        notifyAll();
    }

    @Override
    public void sample(int lane, long bytes, long ns, boolean wasCancelled) {
        String node = nodes[lane];
        if (node != null) {
            later.addLast(() -> source.onSample(node, bytes, ns, wasCancelled));
        }
    }

    private void decodeNow(int sub, int lane) {
        byte[] sum;
        boolean isThere;
        synchronized (this) {
            sum = parity[sub];
            parity[sub] = null;
            // It may have arrived since.
            isThere = data[lane][sub] != null;
        }
        boolean isDone = isThere;
        try {
            if (!isThere) {
                sum(lane, sub, sum);
                isDone = source.check(lane, sub, sum, length(lane, sub)) != Verdict.WRONG;
                if (isDone) {
                    source.onDecoded(length(lane, sub));
                }
            }
        } catch (Throwable e) {
            // The machine asks the lane again, or the reader the store.
            isDone = false;
        }
        // At once, as with `arrived`.
        synchronized (this) {
            if (isDone && data[lane][sub] == null) {
                data[lane][sub] = sum;
                sum = null;
                wake(lane);
            }
            StripeRead.Kind kind = isDone ? StripeRead.Kind.DECODED : StripeRead.Kind.NOT_DECODED;
            machine.on(System.nanoTime(), kind, lane, sub, 0, this);
        }
        if (sum != null) {
            pieces.give(sum);
        }
        workOff();
    }

    /** Readers of this lane look again. The lock is held. */
    private void wake(int lane) {
        if (waiting[lane] > 0) {
            notifyAll();
        }
    }

    private void sum(int lane, int sub, byte[] sum) {
        int length = length(lane, sub);
        byte[][] pieces = new byte[k - 1][];
        int[] lengths = new int[k - 1];
        synchronized (this) {
            for (int other = 0, i = 0; other < k; other++) {
                if (other != lane) {
                    pieces[i] = data[other][sub];
                    // Bytes beyond the lane's end are not wanted.
                    lengths[i++] = pieces[i - 1] == null ? 0 : Math.min(length, length(other, sub));
                }
            }
        }
        ParityValue.xorAll(sum, pieces, lengths);
    }

    // Lanes.

    private void run(int lane) {
        try {
            if (lane == k) {
                runParity();
            } else {
                runData(lane);
            }
        } finally {
            leave();
            // A cancel that came late must not reach the thread's next work.
            Thread.interrupted();
        }
    }

    private void runData(int lane) {
        Lane from = null;
        try {
            for (int sub = await(lane); sub != NOTHING; sub = await(lane)) {
                byte[] piece = null;
                int length = length(lane, sub);
                boolean done = false;
                try {
                    piece = pieces.take();
                    if (from == null) {
                        from = source.open(lane);
                    }
                    if (enterRead(lane, from)) {
                        from.read((long) sub * subBytes, piece, length);
                        done = true;
                    }
                } catch (Throwable e) {
                    // The lane is lost, for which the machine has an answer. An Error is no other case: without an answer the
                    // reader would wait for this lane.
                    close(from);
                    from = null;
                } finally {
                    leaveRead(lane, from);
                }
                if (done) {
                    arrived(lane, sub, piece, length);
                } else {
                    giveBack(piece);
                    fail(lane);
                }
            }
        } finally {
            close(from);
        }
    }

    private void runParity() {
        boolean known = false;
        for (int sub = await(k); sub != NOTHING; sub = await(k)) {
            byte[] piece = null;
            int length = parityLength(sub);
            StripeRead.Kind answer = StripeRead.Kind.ABSENT;
            try {
                if (!known && !source.hasParity()) {
                    answer = StripeRead.Kind.ABSENT_ALL;
                } else {
                    if (!known) {
                        known = true;
                        tellSlow();
                    }
                    piece = pieces.take();
                    answer = source.parity(sub, piece, length) ? StripeRead.Kind.ARRIVED : StripeRead.Kind.ABSENT;
                }
            } catch (Throwable e) {
                // An Error too: dead lanes wait for this one's answer.
                answer = known ? StripeRead.Kind.ABSENT : StripeRead.Kind.ABSENT_ALL;
            }
            if (answer == StripeRead.Kind.ARRIVED) {
                arrived(k, sub, piece, length);
            } else {
                giveBack(piece);
                ended(k);
                on(answer, k, sub, 0);
            }
        }
    }

    private void tellSlow() {
        for (int lane = 0; lane < k; lane++) {
            if (source.wantsParityFor(lane)) {
                on(StripeRead.Kind.SLOW, lane, 0, 0);
            }
        }
    }

    private void giveBack(byte[] piece) {
        if (piece != null) {
            pieces.give(piece);
        }
    }

    /**
     * The bytes are shown to the reader and told to the machine at once. Between the two, a reader that has its last byte could
     * stop: then the machine would not say that the subblock is ready, and the file would get no parity.
     */
    private void arrived(int lane, int sub, byte[] piece, int length) {
        byte[] spare = piece;
        synchronized (this) {
            byte[][] place = lane == k ? parity : data[lane];
            boolean isOfUse = !machine.isOver() && (lane != k || !machine.isReady(sub));
            if (place[sub] == null && isOfUse) {
                place[sub] = piece;
                spare = null;
            }
            asked[lane] = NOTHING;
            machine.on(System.nanoTime(), StripeRead.Kind.ARRIVED, lane, sub, length, this);
            if (lane < k) {
                wake(lane);
            }
        }
        if (spare != null) {
            pieces.give(spare);
        }
        workOff();
    }

    private void fail(int lane) {
        ended(lane);
        on(StripeRead.Kind.FAILED, lane, 0, 0);
    }

    private synchronized void ended(int lane) {
        asked[lane] = NOTHING;
    }

    private synchronized int await(int lane) {
        while (asked[lane] == NOTHING && !cancelled[lane]) {
            idle[lane] = true;
            try {
                wait();
            } catch (InterruptedException e) {
                // Only `cancel` interrupts, and it has left its mark.
                continue;
            } finally {
                idle[lane] = false;
            }
        }
        return cancelled[lane] ? NOTHING : asked[lane];
    }

    private synchronized boolean enterRead(int lane, Lane from) {
        // Before the read: a node that stands still ends none, and is the one to tell of.
        name(lane, from);
        if (cancelled[lane]) {
            return false;
        }
        if (from.isInterruptible()) {
            reading[lane] = Thread.currentThread();
        }
        return true;
    }

    private synchronized void leaveRead(int lane, Lane from) {
        reading[lane] = null;
        name(lane, from);
    }

    private void name(int lane, Lane from) {
        String node = from == null ? null : from.node();
        if (node != null) {
            nodes[lane] = node;
        }
    }

    private static void close(Lane lane) {
        if (lane != null) {
            try {
                lane.close();
            } catch (Throwable e) {
                // It was read from only.
            }
        }
    }
}
