package io.paritas.files;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * How fast each node was lately, as this client saw it. Tells a slow node from a slow store: while over half of the nodes run
 * below half of their own median of ten minutes, more requests would only make it worse.
 *
 * <p>Only requests of about the same size are compared: a small one has a low rate on a fast node too.
 */
public final class NodeRates {
    private static final long WINDOW_NS = 600_000_000_000L;
    private static final int SAMPLES_MAX = 64;
    private static final int SAMPLES_MIN = 8;
    private static final int RECENT = 3;
    /** What was slow longer ago says nothing about now. */
    private static final long RECENT_NS = 30_000_000_000L;
    private static final int NODES_MAX = 4096;

    private static final class Sample {
        final long atNs;
        final int size;
        final double rate;

        Sample(long atNs, long bytes, long tookNs) {
            this.atNs = atNs;
            size = Latencies.size(bytes);
            rate = (double) bytes / Math.max(1, tookNs);
        }
    }

    private final Map<String, Deque<Sample>> nodes = new HashMap<>();

    public synchronized void onSample(long nowNs, String node, long bytes, long ns) {
        Deque<Sample> samples = nodes.get(node);
        if (samples == null) {
            if (nodes.size() == NODES_MAX) {
                return;
            }
            samples = new ArrayDeque<>();
            nodes.put(node, samples);
        }
        samples.addLast(new Sample(nowNs, bytes, ns));
        while (samples.size() > SAMPLES_MAX || nowNs - samples.peekFirst().atNs > WINDOW_NS) {
            samples.removeFirst();
        }
    }

    /** Whether the store as a whole is slow. */
    public synchronized boolean isStoreSlow(long nowNs) {
        int known = 0;
        int slow = 0;
        for (Deque<Sample> samples : nodes.values()) {
            List<Sample> alike = lastAlike(samples);
            if (alike.isEmpty()) {
                continue;
            }
            known++;
            double[] rates = alike.stream().mapToDouble(sample -> sample.rate).toArray();
            boolean isRecent = nowNs - alike.get(RECENT - 1).atNs <= RECENT_NS;
            double recent = 0;
            for (int i = 0; i < RECENT; i++) {
                recent += rates[i] / RECENT;
            }
            java.util.Arrays.sort(rates);
            slow += isRecent && recent < rates[rates.length / 2] / 2 ? 1 : 0;
        }
        return known > 1 && 2 * slow > known;
    }

    /** Samples of one size, the newest first: of the size that was asked for last and is known well enough. Or none. */
    private static List<Sample> lastAlike(Deque<Sample> samples) {
        int[] count = new int[Long.SIZE];
        samples.forEach(sample -> count[sample.size]++);
        List<Sample> alike = new ArrayList<>();
        samples.descendingIterator().forEachRemaining(sample -> {
            boolean isWanted = alike.isEmpty() ? count[sample.size] >= SAMPLES_MIN : sample.size == alike.get(0).size;
            if (isWanted) {
                alike.add(sample);
            }
        });
        return alike;
    }
}
