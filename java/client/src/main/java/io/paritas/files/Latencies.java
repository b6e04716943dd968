package io.paritas.files;

/** The median of the last requests' times, by size: requests within a factor of two count as alike. */
public final class Latencies {
    private static final int KEPT = 64;
    private static final int KEPT_MIN = 3;

    private final long[][] ns = new long[Long.SIZE][KEPT];
    private final long[] count = new long[Long.SIZE];
    private final long[] median = new long[Long.SIZE];

    public synchronized void onRead(long bytes, long tookNs) {
        int size = size(bytes);
        ns[size][(int) (count[size]++ % KEPT)] = tookNs;
        int known = (int) Math.min(KEPT, count[size]);
        // It is asked for more often than it changes much.
        if (known >= KEPT_MIN && (known < KEPT / 4 || count[size] % 4 == 0)) {
            long[] sorted = java.util.Arrays.copyOf(ns[size], known);
            java.util.Arrays.sort(sorted);
            median[size] = sorted[known / 2];
        }
    }

    /** 0 while too few are known. */
    public synchronized long medianNs(long bytes) {
        return median[size(bytes)];
    }

    static int size(long bytes) {
        return Long.SIZE - 1 - Long.numberOfLeadingZeros(Math.max(1, bytes));
    }
}
