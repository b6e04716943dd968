package io.paritas.files;

import java.io.Closeable;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Deque;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;

/**
 * Drives a {@link StripeRead}: a thread for each lane that is asked, and the memory of what is read.
 *
 * <p>A reader says what it {@link #want}s and takes bytes in {@link #read} as soon as they are there. The memory of a row goes back
 * when the reader has passed all that was wanted of it; all of it when the last thread that uses it has ended.
 */
public final class StripeReader implements StripeRead.Out {
    /** A data block. Used by one thread. */
    public interface Lane extends Closeable {
        /** Reads all these bytes of the block, or fails. */
        void read(long offset, byte[] into, int length) throws IOException;

        /** As `read`, where the bytes behind these are not wanted: the node should send no more. */
        default void readAlone(long offset, byte[] into, int length) throws IOException {
            read(offset, into, length);
        }

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

    /** Where lanes and parity come from, and what is told of the read. */
    public interface Source {
        Lane open(int lane) throws IOException;

        /** Waits for what the cache has. Whether there may be parity for this stripe. */
        boolean hasParity();

        /** Whether `hasParity` would not wait. */
        default boolean isDecided() {
            return false;
        }

        /** Whether this data lane is late from the beginning: its node is known to be slow. Asked after `hasParity`. */
        boolean wantsParityFor(int lane);

        /** Whether the lane would be read from another node than this one if it were opened now. */
        default boolean isBetterElsewhere(int lane, String node) {
            return false;
        }

        /** Gets a parity subblock of at least `length` bytes. False if it is absent or damaged. */
        boolean parity(int sub, byte[] into, int length);

        /** Compares what was decoded of a data lane with what the store knows of it. */
        default Verdict check(int lane, int sub, byte[] bytes, int length) {
            return Verdict.UNKNOWN;
        }

        /** All data of the row is there: call {@link #encode} in another thread if its parity is wanted. */
        void onReady(int sub);

        /** A request of so many bytes was answered in that time. */
        default void onRead(int bytes, long ns) {}

        void onSample(String node, long bytes, long ns, boolean cancelled);

        void onDecoded(int bytes);

        /** How old a request is when its node counts as late. Called with locks held. */
        default long lateNs() {
            return Long.MAX_VALUE;
        }

        /** Whether so many bytes that no reader wants may be read because this lane is late. Called with locks held. */
        default boolean mayRead(int lane, long bytes, boolean must) {
            return true;
        }

        /** They were not read. Called with locks held. */
        default void notRead(long bytes) {}

        /** The last user of the stripe's memory has gone. */
        void onGone();
    }

    /** The answer of {@link #read}: this data is to be read from the store itself. */
    public static final int LOST = -1;

    private static final int NOTHING = -1;
    /** A reader that waits looks that often whether its lane is late. */
    private static final long LOOK_MS = 10;

    private final Source source;
    private final Pieces pieces;
    private final StripeRead machine;
    private final long[] laneBytes;
    private final int subBytes;
    private final int k;
    private final byte[][][] data;
    private final byte[][] parity;
    private final int[] asked;
    private final boolean[] isAlone;
    private final boolean[] cancelled;
    private final boolean[] started;
    private final boolean[] isMoving;
    private final Thread[] reading;
    private final String[] nodes;
    /** Lanes whose thread waits for a request, and readers that wait for a lane: others need not be woken. */
    private final boolean[] idle;
    private final int[] waiting;
    private final Deque<Runnable> later = new ArrayDeque<>();
    /** Bytes that are reserved for each row, and for what is in flight. */
    private final long[] reserved;
    private long reservedBytes;
    /** Who uses the bytes of a row now; and rows that are to be forgotten when nobody does. */
    private final int[] pins;
    private final BitSet doomed = new BitSet();
    /** What is to become of rows is known: until then those that were passed are kept, for they may get parity. */
    private boolean isDecided;
    private Executor threads;
    private int users;

    /** The caller has reserved `bytesNeeded` in `pieces`; it goes back when the read is over. */
    public StripeReader(long[] laneBytes, int subBytes, Source source, Pieces pieces) {
        this.laneBytes = laneBytes;
        this.source = source;
        this.pieces = pieces;
        this.subBytes = subBytes;
        machine = new StripeRead(laneBytes, subBytes);
        k = laneBytes.length;
        data = new byte[k][machine.subs()][];
        parity = new byte[machine.subs()][];
        asked = new int[k + 1];
        Arrays.fill(asked, NOTHING);
        isAlone = new boolean[k + 1];
        cancelled = new boolean[k + 1];
        started = new boolean[k + 1];
        isMoving = new boolean[k + 1];
        reading = new Thread[k + 1];
        nodes = new String[k + 1];
        idle = new boolean[k + 1];
        waiting = new int[k];
        reserved = new long[machine.subs()];
        pins = new int[machine.subs()];
        reservedBytes = bytesNeeded(subBytes);
        users = 1;
    }

    /** What a read takes at least: the piece that its reader waits for, and one that comes late. */
    public static long bytesNeeded(int subBytes) {
        return 2L * subBytes;
    }

    /** Asks for the stripe's parity. Data is read when it is wanted. */
    public void start(Executor executor) {
        threads = executor;
        if (source.isDecided()) {
            decide();
        } else {
            startLane(k);
        }
    }

    /** Has this piece read. False if there is no memory for it beside what others have, and so many bytes more. */
    public boolean want(int lane, int sub, long spareBytes) {
        synchronized (this) {
            if (machine.isOver() || machine.wants(lane, sub)) {
                return true;
            }
            if (!tryKeep(lane, sub, spareBytes)) {
                // Rows that wait for the steward's answer: their parity is not made this time.
                forgetDoomed();
                if (!tryKeep(lane, sub, spareBytes)) {
                    return false;
                }
            }
            doomed.clear(sub);
            machine.on(System.nanoTime(), StripeRead.Kind.WANT, lane, sub, 0, this);
        }
        workOff();
        return true;
    }

    public synchronized boolean wants(int lane, int sub) {
        return machine.wants(lane, sub);
    }

    public synchronized boolean has(int lane, int sub) {
        return machine.has(lane, sub);
    }

    /** What is there for a reconstruction needs no more memory, but would be kept for as long as it is wanted. */
    private boolean tryKeep(int lane, int sub, long spareBytes) {
        return tryReserve(sub, machine.has(lane, sub) ? 0 : subBytes, spareBytes);
    }

    private boolean tryReserve(int sub, long bytes, long spareBytes) {
        boolean done = pieces.tryReserve(bytes, spareBytes);
        if (done) {
            reserved[sub] += bytes;
            reservedBytes += bytes;
        }
        return done;
    }

    /**
     * Copies bytes from `offset` of data lane `lane` on, as many as its subblock has. Waits for them. {@link #LOST} if the lane
     * can't give them.
     */
    public int read(int lane, long offset, byte[] into, int at, int length) throws IOException {
        int sub = (int) (offset / subBytes);
        int from = (int) (offset % subBytes);
        byte[] piece;
        synchronized (this) {
            doomed.clear(sub);
            if (!machine.wants(lane, sub) && !machine.isOver()) {
                // Whatever memory there is: `bytesNeeded` has room for it.
                machine.on(System.nanoTime(), StripeRead.Kind.WANT, lane, sub, 0, this);
            }
        }
        workOff();
        while (true) {
            synchronized (this) {
                piece = data[lane][sub];
                if (piece == null) {
                    if (machine.isLost(lane) || machine.isOver()) {
                        return LOST;
                    }
                    awaitData(lane);
                    piece = data[lane][sub];
                }
                if (piece != null) {
                    pins[sub]++;
                    break;
                }
                machine.on(System.nanoTime(), StripeRead.Kind.TICK, 0, 0, 0, this);
            }
            workOff();
        }
        int count = Math.min(length, length(lane, sub) - from);
        System.arraycopy(piece, from, into, at, count);
        synchronized (this) {
            if (from + count == length(lane, sub)) {
                onPassed(lane, sub);
            }
            unpin(sub);
        }
        return count;
    }

    /** The reader goes on behind this piece without having read it. */
    public synchronized void pass(int lane, int sub) {
        onPassed(lane, sub);
        pins[sub]++;
        unpin(sub);
    }

    private void onPassed(int lane, int sub) {
        if (machine.onPassed(lane, sub) && !machine.isOver()) {
            doomed.set(sub);
        }
    }

    /** Waits until something of the lane has changed, or it is time to look whether it is late. */
    private void awaitData(int lane) throws InterruptedIOException {
        waiting[lane]++;
        try {
            wait(LOOK_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while it waited for a stripe");
        } finally {
            waiting[lane]--;
        }
    }

    /** The lock is held. */
    private void unpin(int sub) {
        pins[sub]--;
        if (doomed.get(sub) && isDecided) {
            forget(sub);
        }
    }

    private void forgetDoomed() {
        for (int sub = doomed.nextSetBit(0); sub >= 0; sub = doomed.nextSetBit(sub + 1)) {
            forget(sub);
        }
    }

    private void forget(int sub) {
        if (pins[sub] > 0 || machine.isOver()) {
            return;
        }
        doomed.clear(sub);
        machine.on(System.nanoTime(), StripeRead.Kind.FORGET, 0, sub, 0, this);
        for (byte[][] lane : data) {
            giveBack(lane[sub]);
            lane[sub] = null;
        }
        pieces.release(reserved[sub]);
        reservedBytes -= reserved[sub];
        reserved[sub] = 0;
    }

    public synchronized boolean isWhole() {
        return machine.isWhole();
    }

    /** Whether no byte more is needed for what is wanted. */
    public synchronized boolean isSatisfied() {
        return machine.isSatisfied();
    }

    /** Whether some node of the stripe is late. */
    public synchronized boolean isAnyLate() {
        return machine.isAnyLate();
    }

    public int subs() {
        return machine.subs();
    }

    /** Writes the row's parity into `into`, so that it can be written to the cache. Returns its length. The row is entered. */
    public int encode(int sub, byte[] into) {
        int length = parityLength(sub);
        Arrays.fill(into, 0, length, (byte) 0);
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

    /** Rows that are complete now. */
    public synchronized BitSet readySubs() {
        BitSet ready = new BitSet();
        for (int sub = 0; sub < machine.subs(); sub++) {
            ready.set(sub, machine.isComplete(sub));
        }
        return ready;
    }

    /** Keeps a row's bytes until `leave`. False if they are not all there any more. */
    public synchronized boolean enter(int sub) {
        if (users == 0 || !machine.isComplete(sub)) {
            return false;
        }
        users++;
        pins[sub]++;
        return true;
    }

    public void leave(int sub) {
        synchronized (this) {
            unpin(sub);
        }
        leave();
    }

    private void leave() {
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
            giveBack(several[i]);
            several[i] = null;
        }
    }

    private byte[] take() {
        return subBytes == pieces.pieceBytes() ? pieces.take() : new byte[subBytes];
    }

    private void giveBack(byte[] piece) {
        if (piece != null && piece.length == pieces.pieceBytes()) {
            pieces.give(piece);
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
            } catch (RuntimeException | Error e) {
                // Then the row has no parity, or the steward no sample.
                continue;
            }
        }
    }

    // What the machine asks for. The lock is held.

    @Override
    public void fetch(int lane, int sub, boolean isWanted) {
        asked[lane] = sub;
        isAlone[lane] = !isWanted;
        if (!started[lane]) {
            later.addLast(() -> startLane(lane));
        } else if (idle[lane]) {
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
        pins[sub]++;
        later.addLast(() -> {
            try {
                decodeNow(sub, lane);
            } finally {
                leave(sub);
            }
        });
    }

    @Override
    public void ready(int sub) {
        if (enter(sub)) {
            later.addLast(() -> {
                try {
                    source.onReady(sub);
                } finally {
                    leave(sub);
                }
            });
        }
    }

    @Override
    public void settled(int sub) {
        giveBack(parity[sub]);
        parity[sub] = null;
    }

    @Override
    public void lost(int lane) {
        notifyAll();
    }

    @Override
    public long lateNs() {
        return source.lateNs();
    }

    @Override
    public boolean mayRead(int lane, int sub, int count, boolean must) {
        long bytes = (long) count * subBytes;
        // The parity too. A lane that has failed must be answered whatever memory there is.
        boolean isReserved = tryReserve(sub, bytes + subBytes, 0);
        if (!isReserved && !must) {
            return false;
        }
        boolean may = source.mayRead(lane, bytes, must);
        if (!may && isReserved) {
            pieces.release(bytes + subBytes);
            reserved[sub] -= bytes + subBytes;
            reservedBytes -= bytes + subBytes;
        }
        return may;
    }

    @Override
    public void notRead(int count) {
        source.notRead((long) count * subBytes);
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
        synchronized (this) {
            sum = parity[sub];
            parity[sub] = null;
        }
        boolean isDone = false;
        try {
            // The lane's own bytes may have arrived since: the machine takes them then.
            if (sum != null) {
                sum(lane, sub, sum);
                isDone = source.check(lane, sub, sum, length(lane, sub)) != Verdict.WRONG;
                if (isDone) {
                    source.onDecoded(length(lane, sub));
                }
            }
        } catch (RuntimeException | Error e) {
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
        giveBack(sum);
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

    /** A thread for the lane. Without one, the lane has failed. */
    private void startLane(int lane) {
        synchronized (this) {
            if (started[lane] || users == 0) {
                return;
            }
            started[lane] = true;
            users++;
        }
        try {
            threads.execute(() -> run(lane));
        } catch (RejectedExecutionException | OutOfMemoryError e) {
            // The system may have no thread left, of which Java says that there is no memory.
            synchronized (this) {
                started[lane] = false;
                isDecided |= lane == k;
            }
            leave();
            if (lane == k) {
                on(StripeRead.Kind.ABSENT_ALL, k, 0, 0);
            } else {
                fail(lane);
            }
        }
    }

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
                long startNs = System.nanoTime();
                try {
                    piece = take();
                    if (from == null) {
                        from = source.open(lane);
                    }
                    if (enterRead(lane, from)) {
                        long offset = (long) sub * subBytes;
                        if (isAlone[lane]) {
                            from.readAlone(offset, piece, length);
                        } else {
                            from.read(offset, piece, length);
                        }
                        done = true;
                    }
                } catch (IOException | RuntimeException | Error e) {
                    // The lane is lost, for which the machine has an answer. An Error is no other case: without an answer the
                    // reader would wait for this lane.
                    close(from);
                    from = null;
                } finally {
                    leaveRead(lane, from);
                }
                if (done) {
                    source.onRead(length, System.nanoTime() - startNs);
                    arrived(lane, sub, piece, length);
                } else {
                    giveBack(piece);
                    if (hasMoved(lane)) {
                        Thread.interrupted();
                    } else {
                        fail(lane);
                    }
                }
            }
        } finally {
            close(from);
        }
    }

    /** Asks whether there is parity, and which nodes are slow. */
    private void decide() {
        boolean isThere = false;
        try {
            isThere = source.hasParity();
            for (int lane = 0; lane < k; lane++) {
                if (source.wantsParityFor(lane)) {
                    on(StripeRead.Kind.SLOW, lane, 0, 0);
                }
                move(lane);
            }
        } catch (RuntimeException | Error e) {
            // An Error too: dead lanes wait for this answer.
            isThere = false;
        }
        if (!isThere) {
            on(StripeRead.Kind.ABSENT_ALL, k, 0, 0);
        }
        synchronized (this) {
            isDecided = true;
            forgetDoomed();
        }
    }

    /** A lane that has begun at a slow node, before it was known to be slow, begins again at another replica. */
    private synchronized void move(int lane) {
        if (reading[lane] != null && nodes[lane] != null && source.isBetterElsewhere(lane, nodes[lane])) {
            isMoving[lane] = true;
            reading[lane].interrupt();
        }
    }

    private synchronized boolean hasMoved(int lane) {
        boolean moved = isMoving[lane] && !cancelled[lane];
        isMoving[lane] = false;
        return moved;
    }

    private void runParity() {
        boolean isKnown;
        synchronized (this) {
            isKnown = isDecided;
        }
        if (!isKnown) {
            decide();
        }
        for (int sub = await(k); sub != NOTHING; sub = await(k)) {
            byte[] piece = null;
            int length = parityLength(sub);
            StripeRead.Kind answer = StripeRead.Kind.ABSENT;
            try {
                piece = take();
                answer = source.parity(sub, piece, length) ? StripeRead.Kind.ARRIVED : StripeRead.Kind.ABSENT;
            } catch (RuntimeException | Error e) {
                // An Error too: dead lanes wait for this one's answer.
                answer = StripeRead.Kind.ABSENT;
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

    /**
     * The bytes are shown to the reader and told to the machine at once. Between the two, a reader that has its last byte could
     * stop: then the machine would not say that the row is complete, and the file would get no parity.
     */
    private void arrived(int lane, int sub, byte[] piece, int length) {
        byte[] spare = piece;
        synchronized (this) {
            byte[][] place = lane == k ? parity : data[lane];
            if (place[sub] == null && machine.takes(lane, sub)) {
                place[sub] = piece;
                spare = null;
            }
            asked[lane] = NOTHING;
            machine.on(System.nanoTime(), StripeRead.Kind.ARRIVED, lane, sub, length, this);
            if (lane < k) {
                wake(lane);
            }
        }
        giveBack(spare);
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
            } catch (IOException | RuntimeException e) {
                // It was read from only.
            }
        }
    }
}
