package io.paritas.files;

/** A token bucket of bytes: each byte read puts a share into it, and what hedges read is taken out. */
public final class ByteBudget {
    private final double share;
    private final long bytesMax;
    private double bytes;

    /** The bucket begins with a quarter of what it holds at most. */
    public ByteBudget(double share, long bytesMax) {
        this.share = share;
        this.bytesMax = bytesMax;
        bytes = share > 0 ? bytesMax / 4.0 : 0;
    }

    public synchronized void onRead(long count) {
        bytes = Math.min(bytesMax, bytes + share * count);
    }

    public synchronized boolean take(long count) {
        if (count > bytes) {
            return false;
        }
        bytes -= count;
        return true;
    }
}
