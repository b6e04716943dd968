package io.paritas.files;

/**
 * A token bucket of bytes: each byte read puts a share into it, and what hedges read is taken out. It begins empty: many
 * clients that have just started must not together slow a store down that is slow already.
 */
public final class ByteBudget {
    private final double share;
    private final long bytesMax;
    private double bytes;

    public ByteBudget(double share, long bytesMax) {
        this.share = share;
        this.bytesMax = bytesMax;
    }

    public void onRead(long count) {
        add(share * count);
    }

    /** The steward has granted so many bytes, or they were taken and not read. */
    public void onGrant(long count) {
        add(count);
    }

    private synchronized void add(double count) {
        bytes = Math.min(bytesMax, bytes + count);
    }

    public synchronized boolean take(long count) {
        if (count > bytes) {
            return false;
        }
        bytes -= count;
        return true;
    }
}
