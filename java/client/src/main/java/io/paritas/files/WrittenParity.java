package io.paritas.files;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;

/**
 * The parity of a file that is being written: summed up by the writer's own thread, sent to the cache by others, and committed
 * when the file is closed and its identity is known.
 *
 * <p>A writer never waits for the steward. It waits for the cache only while there is no memory for the next sum, and over the
 * whole file not longer than `timeoutMs`; then the file has no parity. Whatever goes wrong, the parity is dropped.
 */
public final class WrittenParity implements FilesClient.Pinned, ParityWrite.Out {
    /** Asks the store about the closed file. */
    public interface Identity {
        /** Its version. Fails unless its bytes are exactly those that were written, `length` in number. */
        long version(long length) throws IOException;
    }

    private static final class Sum {
        final long stripe;
        final int sub;
        final byte[] bytes;
        final int length;

        Sum(long stripe, int sub, byte[] bytes, int length) {
            this.stripe = stripe;
            this.sub = sub;
            this.bytes = bytes;
            this.length = length;
        }
    }

    private final FilesClient client;
    private final long id;
    private final boolean isStriped;
    private final int k;
    private final long blockBytes;
    private final long lengthMin;
    private final long lengthMax;

    /** Held while bytes are added, which may take as long as `patienceNs`: other threads must not free a sum meanwhile. */
    private final Object adding = new Object();
    private final ParityWrite machine;
    private final byte[][] sums;
    private byte[] from;
    private int fromAt;
    private boolean isAsked;
    private boolean isLost;

    // The others are under the lock of this.
    private long patienceNs;
    private StewardClient.Grant grant;
    /** Complete sums that wait for the steward's answer. */
    private final Deque<Sum> waiting = new ArrayDeque<>();
    /** Complete sums that are not yet in the cache. */
    private int unsent;
    private boolean failed;
    private boolean revoked;
    private boolean ended;
    private boolean isFinishing;
    private boolean isOver;
    /** The file ended before the steward was asked. */
    private boolean isShort;
    private boolean mustAnswer;
    private Identity identity;

    /** `k` blocks or cells have a parity in common. Files shorter than `lengthMin` or longer than `lengthMax` get none. */
    public WrittenParity(
            FilesClient client, long id, boolean isStriped, int k, long blockBytes, long lengthMin, long lengthMax) {
        this.client = client;
        this.id = id;
        this.isStriped = isStriped;
        this.k = k;
        this.blockBytes = blockBytes;
        this.lengthMin = lengthMin;
        this.lengthMax = lengthMax;
        machine = new ParityWrite(isStriped, k, blockBytes, client.settings.subBytes);
        // A file that is longer than `lengthMax` is given up before it has more sums, however large its blocks are.
        long subs = (lengthMax + client.settings.subBytes - 1) / client.settings.subBytes;
        sums = new byte[(int) Math.min(machine.subs(), subs)][];
        patienceNs = TimeUnit.MILLISECONDS.toNanos(client.settings.timeoutMs);
    }

    /** The store has taken these bytes, which go on where the last ones ended. */
    public void data(byte[] bytes, int at, int count) {
        synchronized (adding) {
            if (isLost) {
                return;
            }
            if (hasFailed() || machine.length() + count > lengthMax) {
                fail();
                return;
            }
            from = bytes;
            fromAt = at;
            machine.data(count, this);
            from = null;
            // A short file costs the steward nothing. Its sums that are complete before wait for the answer.
            if (!isAsked && machine.length() >= lengthMin) {
                ask();
            }
        }
    }

    /** The file is closed. Waits for nothing. */
    public void end(Identity closed) {
        synchronized (adding) {
            if (!isAsked) {
                // Sums may be complete all the same, and wait for an answer that never comes.
                synchronized (this) {
                    isShort = !failed;
                }
                giveUp();
            } else if (!hasFailed()) {
                machine.end(this);
            }
            giveSums();
        }
        synchronized (this) {
            ended = true;
            identity = closed;
        }
        finishSoon();
    }

    /** The file was not written as it should, or is never closed. */
    public void fail() {
        giveUp();
        synchronized (adding) {
            isLost = true;
            giveSums();
        }
        finishSoon();
    }

    /** Waits until the parity is committed or dropped. Of use before a JVM ends. False if it is not by the deadline. */
    public synchronized boolean await(long deadlineNs) throws InterruptedException {
        while (!isOver) {
            long leftMs = TimeUnit.NANOSECONDS.toMillis(deadlineNs - System.nanoTime());
            if (leftMs <= 0) {
                return false;
            }
            wait(leftMs);
        }
        return true;
    }

    /** Whether nothing more will happen. */
    public synchronized boolean isOver() {
        return isOver;
    }

    /** Whether the file is closed. */
    public synchronized boolean hasEnded() {
        return ended;
    }

    @Override
    public void revoke() {
        synchronized (this) {
            revoked = true;
        }
        giveUp();
    }

    // What the machine asks for. The lock `adding` is held.

    @Override
    public void add(int sub, int at, int first, int count, boolean begins) {
        if (begins && at == 0) {
            sums[sub] = take();
        }
        if (sums[sub] == null) {
            return;
        }
        if (begins) {
            System.arraycopy(from, fromAt + first, sums[sub], at, count);
        } else {
            ParityValue.xor(sums[sub], at, from, fromAt + first, count);
        }
    }

    @Override
    public void put(long stripe, int sub, int length) {
        Sum sum = new Sum(stripe, sub, sums[sub], length);
        sums[sub] = null;
        if (sum.bytes == null) {
            // Memory was refused, and so this has failed.
            return;
        }
        synchronized (this) {
            unsent++;
            if (grant == null && !failed) {
                waiting.addLast(sum);
                return;
            }
        }
        send(sum);
    }

    /** Memory for a sum. Null, and this has failed, if there is none in time. */
    private byte[] take() {
        int bytes = client.pieces.pieceBytes();
        synchronized (this) {
            while (!failed && !client.pieces.tryReserve(bytes)) {
                long begin = System.nanoTime();
                if (unsent == 0 || patienceNs <= 0) {
                    client.counters.writesDeclined.incrementAndGet();
                    failed = true;
                    break;
                }
                try {
                    TimeUnit.NANOSECONDS.timedWait(this, patienceNs);
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                    failed = true;
                }
                patienceNs -= System.nanoTime() - begin;
            }
            if (failed) {
                return null;
            }
        }
        try {
            return client.pieces.take();
        } catch (OutOfMemoryError e) {
            client.pieces.release(bytes);
            throw e;
        }
    }

    private void give(byte[] piece) {
        client.pieces.give(piece);
        client.pieces.release(client.pieces.pieceBytes());
    }

    private void giveSums() {
        for (int sub = 0; sub < sums.length; sub++) {
            if (sums[sub] != null) {
                give(sums[sub]);
                sums[sub] = null;
            }
        }
    }

    private synchronized boolean hasFailed() {
        return failed;
    }

    private void ask() {
        isAsked = true;
        synchronized (this) {
            mustAnswer = true;
        }
        if (!client.write(this::askNow)) {
            synchronized (this) {
                mustAnswer = false;
            }
            fail();
        }
    }

    private void askNow() {
        StewardClient.Grant granted = null;
        try {
            long stripeBytes = blockBytes * k;
            granted = client.steward.room(id, (lengthMax + stripeBytes - 1) / stripeBytes, k, isStriped, blockBytes);
        } catch (IOException e) {
            // It is away, old, or of another cluster: then the first reader makes the parity.
        } finally {
            // After an Error too: the sums that wait are memory of all reads.
            answered(granted);
        }
    }

    private void answered(StewardClient.Grant granted) {
        boolean hasRoom = granted != null && granted.pin != 0;
        boolean isUsable = hasRoom && granted.subBytes == client.settings.subBytes;
        if (hasRoom) {
            client.pin(granted.pin, this);
        }
        if (hasRoom && !isUsable) {
            Troubles.onSubblock(client.settings.subBytes, granted.subBytes);
        }
        Deque<Sum> ready;
        synchronized (this) {
            grant = granted;
            mustAnswer = false;
            failed |= !isUsable;
            ready = new ArrayDeque<>(waiting);
            waiting.clear();
        }
        ready.forEach(this::send);
        finish();
    }

    private void send(Sum sum) {
        if (!client.write(() -> sendNow(sum))) {
            sent(sum, false);
            finishSoon();
        }
    }

    private void sendNow(Sum sum) {
        boolean done = false;
        try {
            if (!hasFailed()) {
                String key = ParityValue.key(client.settings.namespace, id, grant.token, sum.stripe, sum.sub);
                client.set(key, sum.bytes, sum.length, FileParity.TTL_SECONDS);
                client.counters.paritySubblocksWritten.incrementAndGet();
                done = true;
            }
        } catch (IOException e) {
            // The cache refused it or is away.
        } finally {
            sent(sum, done);
            finish();
        }
    }

    private void sent(Sum sum, boolean done) {
        give(sum.bytes);
        synchronized (this) {
            unsent--;
            failed |= !done;
            notifyAll();
        }
    }

    private void giveUp() {
        Deque<Sum> useless;
        synchronized (this) {
            failed = true;
            useless = new ArrayDeque<>(waiting);
            waiting.clear();
            notifyAll();
        }
        useless.forEach(sum -> sent(sum, false));
    }

    private void finishSoon() {
        if (!client.write(this::finish)) {
            finish();
        }
    }

    /** Commits when the file is closed and all its parity is in the cache; drops when it never will be. */
    private void finish() {
        boolean commits;
        synchronized (this) {
            if (isFinishing || mustAnswer || unsent > 0 || !(ended || failed)) {
                return;
            }
            isFinishing = true;
            commits = ended && !failed && grant != null;
        }
        // The store is asked by another thread: it may take minutes, and what readers write must not wait for it.
        if (!commits || !client.commit(this::commitNow)) {
            end(false);
        }
    }

    private void commitNow() {
        boolean done = false;
        try {
            done = commit();
        } finally {
            end(done);
        }
    }

    private void end(boolean done) {
        if (grant != null && grant.pin != 0) {
            client.unpin(grant.pin);
            if (!done) {
                drop();
            }
        }
        if (isWorthCounting()) {
            (done ? client.counters.writesCommitted : client.counters.writesDropped).incrementAndGet();
        }
        synchronized (this) {
            isOver = true;
            notifyAll();
        }
    }

    /** Not a short file, which no parity was to be made of. */
    private synchronized boolean isWorthCounting() {
        return grant != null || failed && !isShort;
    }

    private boolean commit() {
        try {
            long length = machine.length();
            // It is not known before the file is closed.
            long version = identity.version(length);
            client.setVersion(id, grant.token, version, FileParity.TTL_SECONDS);
            client.steward.commit(grant.pin, machine.subblocks(), version, length);
            client.counters.commits.incrementAndGet();
            return true;
        } catch (IOException | RuntimeException e) {
            // The file is not what was written, or nobody could say so, or the steward does not know this parity any more.
            return false;
        }
    }

    private void drop() {
        synchronized (this) {
            if (revoked) {
                return;
            }
        }
        try {
            client.steward.drop(grant.pin);
        } catch (IOException e) {
            // The pin ends by itself.
        }
    }
}
