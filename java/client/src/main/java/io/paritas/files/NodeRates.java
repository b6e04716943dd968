package io.paritas.files;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;

/**
 * How fast each node was lately, as this client saw it. Tells a slow node from a slow store: while over half of the nodes run
 * below half of their own median of ten minutes, more requests would only make it worse.
 */
public final class NodeRates {
    private static final long WINDOW_NS = 600_000_000_000L;
    private static final int SAMPLES_MAX = 64;
    private static final int SAMPLES_MIN = 8;
    private static final int RECENT = 3;
    private static final int NODES_MAX = 4096;

    private static final class Sample {
        final long ns;
        final double rate;

        Sample(long ns, double rate) {
            this.ns = ns;
            this.rate = rate;
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
        samples.addLast(new Sample(nowNs, (double) bytes / Math.max(1, ns)));
        while (samples.size() > SAMPLES_MAX || nowNs - samples.peekFirst().ns > WINDOW_NS) {
            samples.removeFirst();
        }
    }

    /** Whether the store as a whole is slow. */
    public synchronized boolean isStoreSlow() {
        int known = 0;
        int slow = 0;
        for (Deque<Sample> samples : nodes.values()) {
            if (samples.size() < SAMPLES_MIN) {
                continue;
            }
            known++;
            double[] rates = samples.stream().mapToDouble(sample -> sample.rate).toArray();
            double recent = 0;
            for (int i = rates.length - RECENT; i < rates.length; i++) {
                recent += rates[i] / RECENT;
            }
            java.util.Arrays.sort(rates);
            slow += recent < rates[rates.length / 2] / 2 ? 1 : 0;
        }
        return known > 1 && 2 * slow > known;
    }
}
