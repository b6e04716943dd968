package io.paritas.files;

/** The median of the last requests' times, by size: requests within a factor of two count as alike. */
public final class Latencies {
    private static final int KEPT = 64;
    private static final int KEPT_MIN = 8;

    private final long[][] ns = new long[Long.SIZE][KEPT];
    private final long[] count = new long[Long.SIZE];

    public synchronized void onRead(long bytes, long tookNs) {
        int size = size(bytes);
        ns[size][(int) (count[size]++ % KEPT)] = tookNs;
    }

    /** 0 while too few are known. */
    public synchronized long medianNs(long bytes) {
        int size = size(bytes);
        int known = (int) Math.min(KEPT, count[size]);
        if (known < KEPT_MIN) {
            return 0;
        }
        long[] sorted = java.util.Arrays.copyOf(ns[size], known);
        java.util.Arrays.sort(sorted);
        return sorted[known / 2];
    }

    static int size(long bytes) {
        return Long.SIZE - 1 - Long.numberOfLeadingZeros(Math.max(1, bytes));
    }
}
