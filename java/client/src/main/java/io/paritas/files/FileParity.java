package io.paritas.files;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** The parity of one open file: what the steward granted, and the parity that this reader writes. */
public final class FileParity implements FilesClient.Pinned {
    /** The identity of a file's bytes. */
    public static final class File {
        public final String path;
        public final long id;
        public final long version;
        public final long length;
        public final boolean isStriped;
        public final long blockBytes;
        public final int k;
        /** One for each block, or for each internal data block of each group. */
        public final List<String> nodes;

        public File(String path, long id, long version, long length, boolean isStriped, long blockBytes, int k,
                List<String> nodes) {
            this.isStriped = isStriped;
            this.path = path;
            this.id = id;
            this.version = version;
            this.length = length;
            this.blockBytes = blockBytes;
            this.k = k;
            this.nodes = nodes;
        }
    }

    /** The cache drops parity one day after it was written, or after the steward last put off its expiry. */
    static final int TTL_SECONDS = 86_400;

    private static final int ABSENT = -1;

    private final FilesClient client;
    private final File file;
    /** Nobody reads the file now. */
    private final boolean isAhead;
    /** Held while the steward is asked, which may take seconds. The other state has its own lock. */
    private final Object asking = new Object();
    /** Held while the cache is asked of which version its parity is. */
    private final Object checking = new Object();
    /** Null: it was not asked, or did not answer. */
    private Boolean isOfThisVersion;
    private volatile StewardClient.Grant grant;
    private boolean revoked;
    private boolean closed;
    private boolean failed;
    private boolean isDone;
    /** The steward has been told the end, or could not be. */
    private boolean isTold;
    /** Parity that the steward believes to be there is absent or damaged. */
    private boolean isBad;
    private long writing;
    /** Stripes whose memory is still in use: they may yet have parity to write. */
    private int stripesOpen;
    private long subblocks;
    private long wantedSubblocks;

    public FileParity(FilesClient client, File file) {
        this(client, file, false);
    }

    /** `isAhead`: the parity is to be made before a reader asks for it. */
    public FileParity(FilesClient client, File file, boolean isAhead) {
        this.client = client;
        this.file = file;
        this.isAhead = isAhead;
        long stripes = up(file.length, file.blockBytes * file.k);
        for (long stripe = 0; stripe < stripes; stripe++) {
            long data = file.length - stripe * file.blockBytes * file.k;
            wantedSubblocks += file.isStriped
                    ? up(Math.min(data, file.blockBytes * file.k), (long) file.k * client.settings.subBytes)
                    : up(Math.min(data, file.blockBytes), client.settings.subBytes);
        }
    }

    private static long up(long bytes, long unit) {
        return (bytes + unit - 1) / unit;
    }

    /** Asks the steward at the first call; blocks for as long as it may take to answer. */
    public StewardClient.Grant grant() {
        synchronized (asking) {
            if (grant == null) {
                StewardClient.Grant granted = ask();
                if (granted.pin != 0) {
                    client.pin(granted.pin, this);
                }
                grant = granted;
                // The reader may have gone meanwhile.
                finish();
            }
            return grant;
        }
    }

    /** The grant, or null while the steward has not answered. */
    public StewardClient.Grant grantSoFar() {
        return grant;
    }

    /** Whether the cache may have parity of this file. */
    public boolean isCached() {
        StewardClient.Grant granted = grant();
        return granted.decision == StewardClient.Decision.CACHED && !isRevoked();
    }

    /** Whether this reader is to write the file's parity, as far as is known yet. */
    public boolean shouldCache() {
        StewardClient.Grant granted = grant;
        return granted != null && granted.decision == StewardClient.Decision.SHOULD_CACHE && !isRevoked();
    }

    /** Gets a parity subblock of at least `length` bytes. False if it is absent, damaged, of another place or another version. */
    public boolean fetch(long stripe, int sub, byte[] into, int length) {
        if (!isCached()) {
            return false;
        }
        try {
            int count = isOfThisVersion() ? get(key(stripe, sub), into, length) : ABSENT;
            client.counters.parityBytes.addAndGet(Math.max(0, count));
            return count != ABSENT;
        } catch (IOException e) {
            // The cache is away. It may have the parity when it is back.
            return false;
        }
    }

    /** Whether the parity under the token is of this version: whoever has made it wrote that beside it. */
    private boolean isOfThisVersion() throws IOException {
        synchronized (checking) {
            if (isOfThisVersion == null) {
                byte[] version = new byte[Long.BYTES];
                String key = ParityValue.versionKey(client.settings.namespace, file.id, grant().token);
                boolean isThere = get(key, version, version.length) != ABSENT;
                isOfThisVersion = isThere && Arrays.equals(version, ParityValue.version(file.version));
                if (isThere && !isOfThisVersion) {
                    client.counters.damagedParity.incrementAndGet();
                    onBadParity();
                }
            }
            return isOfThisVersion;
        }
    }

    /** Gets a value of at least `length` bytes. Returns its length; ABSENT also if it is not what a client has put there. */
    private int get(String key, byte[] into, int length) throws IOException {
        byte[] header = new byte[ParityValue.HEADER_BYTES];
        int count = client.get(key, header, into);
        if (count < length || !ParityValue.isOf(client.settings.secret, key, header, into, count)) {
            (count < 0 ? client.counters.missingParity : client.counters.damagedParity).incrementAndGet();
            onBadParity();
            return ABSENT;
        }
        return count;
    }

    /** The steward is told when the reader has gone, so that the parity is made again. */
    public synchronized void onBadParity() {
        isBad = true;
    }

    public synchronized void onStripe() {
        stripesOpen++;
    }

    /** Whether the steward has answered. */
    public boolean isDecided() {
        return grant != null;
    }

    public void onStripeGone() {
        synchronized (this) {
            stripesOpen--;
        }
        if (!client.write(this::finish)) {
            finish();
        }
    }

    /** Has the parity of a subblock encoded and written by another thread. */
    public void write(long stripe, int sub, StripeReader reader) {
        synchronized (this) {
            if (failed || revoked || !reader.enter(sub)) {
                // Its bytes may be gone already: then the file has no parity this time.
                return;
            }
            writing++;
        }
        if (!client.write(() -> writeNow(stripe, sub, reader))) {
            reader.leave(sub);
            wrote(false);
        }
    }

    /** The file is closed by its reader. Parity that is still being written is finished first. */
    public void close() {
        synchronized (this) {
            closed = true;
        }
        // The reader does not wait for the steward.
        if (!client.write(this::finish)) {
            finish();
        }
    }

    @Override
    public synchronized void revoke() {
        revoked = true;
    }

    private synchronized boolean isRevoked() {
        return revoked;
    }

    private String key(long stripe, int sub) {
        return ParityValue.key(client.settings.namespace, file.id, grant().token, stripe, sub);
    }

    private StewardClient.Grant ask() {
        try {
            if (client.isConfigured()) {
                StewardClient.Grant granted = isAhead ? client.steward.make(file) : client.steward.open(file);
                client.onSlow(granted.slow);
                counter(granted.decision).incrementAndGet();
                boolean isWanted = granted.decision != StewardClient.Decision.SHOULD_NOT_CACHE;
                boolean isUsable = isWanted && granted.subBytes == client.settings.subBytes;
                if (isWanted && !isUsable) {
                    Troubles.onSubblock(client.settings.subBytes, granted.subBytes);
                }
                return isUsable ? granted : nothing(granted);
            }
        } catch (IOException e) {
            // It is away, old, or of another cluster: the file is read without parity.
            client.counters.opensFailed.incrementAndGet();
        }
        return nothing(null);
    }

    private AtomicLong counter(StewardClient.Decision decision) {
        switch (decision) {
            case CACHED:
                return client.counters.opensCached;
            case SHOULD_CACHE:
                return client.counters.opensToCache;
            default:
                return client.counters.opensWithout;
        }
    }

    /** Gives back what can't be used. */
    private StewardClient.Grant nothing(StewardClient.Grant granted) {
        if (granted != null && granted.pin != 0) {
            boolean isCached = granted.decision == StewardClient.Decision.CACHED;
            client.write(() -> tell(granted.pin, isCached ? "close" : "drop"));
        }
        return new StewardClient.Grant(StewardClient.Decision.SHOULD_NOT_CACHE, 0, "", 0,
                granted == null ? java.util.Collections.emptySet() : granted.slow);
    }

    private void writeNow(long stripe, int sub, StripeReader reader) {
        boolean done = false;
        byte[] parity = null;
        try {
            synchronized (this) {
                if (failed || revoked) {
                    return;
                }
            }
            parity = client.pieces.take();
            int length = reader.encode(sub, parity);
            client.set(key(stripe, sub), parity, length, TTL_SECONDS);
            client.counters.paritySubblocksWritten.incrementAndGet();
            done = true;
        } catch (IOException e) {
            // The cache refused it or is away: then the file has no parity this time.
        } finally {
            if (parity != null) {
                client.pieces.give(parity);
            }
            reader.leave(sub);
            wrote(done);
        }
    }

    private void wrote(boolean done) {
        synchronized (this) {
            writing--;
            if (done) {
                subblocks++;
            } else {
                failed = true;
            }
        }
        finish();
    }

    /** Commits as soon as all parity is written; drops or closes when the reader has gone and nothing is being written. */
    private void finish() {
        String how;
        synchronized (this) {
            boolean asked = grant != null && grant.pin != 0;
            if (!asked || isDone) {
                return;
            }
            boolean isCached = grant.decision == StewardClient.Decision.CACHED;
            if (!isCached && subblocks == wantedSubblocks && !failed) {
                how = "commit";
            } else if (closed && writing == 0 && stripesOpen == 0) {
                how = isCached && !isBad ? "close" : "drop";
            } else {
                return;
            }
            isDone = true;
        }
        client.unpin(grant.pin);
        if (!isRevoked()) {
            tell(grant.pin, how);
        }
        synchronized (this) {
            isTold = true;
            notifyAll();
        }
    }

    /** Whether nothing more will happen for a reader that has gone. Parity that is cached already needs nothing. */
    public synchronized boolean isOver() {
        return closed && (!shouldCache() || isTold);
    }

    /**
     * Waits until the parity that a reader has made is committed or dropped, if the reader has gone. False if it is not by the
     * deadline.
     */
    public synchronized boolean await(long deadlineNs) throws InterruptedException {
        while (closed && !isOver()) {
            long leftMs = TimeUnit.NANOSECONDS.toMillis(deadlineNs - System.nanoTime());
            if (leftMs <= 0) {
                return false;
            }
            wait(leftMs);
        }
        return true;
    }

    private void tell(long pin, String how) {
        try {
            switch (how) {
                case "commit":
                    client.setVersion(file.id, grant.token, file.version, TTL_SECONDS);
                    client.steward.commit(pin, subblocks);
                    client.counters.commits.incrementAndGet();
                    break;
                case "drop":
                    client.steward.drop(pin);
                    break;
                default:
                    client.steward.close(pin);
                    break;
            }
        } catch (IOException e) {
            // The pin ends by itself.
        }
    }
}
