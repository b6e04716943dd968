package io.paritas.files;

/**
 * One read that is smaller than a stripe. It asks the node that has the bytes. If that takes too long, and budget and store
 * allow it, the bytes are reconstructed from the parity and the other blocks of the stripe as well, and the first one wins.
 * If they do not allow it, they are asked again later, for as long as the read lasts: others fill the budget meanwhile. A
 * read whose node has failed is always reconstructed.
 *
 * <p>Pure, as {@link StripeRead}. The budget bounds what a slow store can be burdened with.
 */
public final class Hedge {
    /** What happened. */
    public enum Kind {
        START,
        /** `nextDeadline` has passed. */
        TICK,
        ARRIVED,
        FAILED,
        RECONSTRUCTED,
        /** There is no parity, or another block could not be read. */
        NOT_RECONSTRUCTED
    }

    /** What is to be done. */
    public interface Out {
        void ask();

        void reconstruct();

        void cancelAsked();

        void cancelReconstruction();

        /** The read is over, with the bytes of the node or with the reconstructed ones. */
        void done(boolean isReconstructed);

        /** The read is over, with the node's error. */
        void failed();

        /** It would have been hedged by now, but for the budget or for a slow store. Called once. */
        void declined();

        /** The budget lacks what a reconstruction costs. Called each time that it was looked at in vain. */
        void wantsBudget();
    }

    /** No deadline. */
    public static final long NEVER = Long.MAX_VALUE;

    private static final long DELAY_MIN_NS = 30_000_000;
    private static final int MEDIANS = 4;

    private final long costBytes;
    private final boolean isKnownSlow;
    private long delayNs;
    private final ByteBudget budget;
    private final NodeRates rates;
    private long deadlineNs = NEVER;
    private boolean asked;
    private boolean hasFailed;
    private boolean reconstructing;
    private boolean wasHedged;
    private boolean wasDeclined;
    private boolean over;

    /** `costBytes` is what a reconstruction reads; `medianNs` is the usual time of such a read, 0 if unknown. */
    public Hedge(long costBytes, boolean isKnownSlow, long medianNs, ByteBudget budget, NodeRates rates) {
        this.costBytes = costBytes;
        this.isKnownSlow = isKnownSlow;
        this.budget = budget;
        this.rates = rates;
        delayNs = Math.max(MEDIANS * medianNs, DELAY_MIN_NS);
    }

    public long nextDeadline() {
        return deadlineNs;
    }

    public boolean isOver() {
        return over;
    }

    public void on(long nowNs, Kind kind, Out out) {
        if (over) {
            return;
        }
        switch (kind) {
            case START:
                asked = true;
                out.ask();
                if (isKnownSlow) {
                    hedge(nowNs, out);
                } else {
                    deadlineNs = nowNs + delayNs;
                }
                break;
            case TICK:
                if (nowNs >= deadlineNs) {
                    hedge(nowNs, out);
                }
                break;
            case ARRIVED:
                over = true;
                if (reconstructing) {
                    out.cancelReconstruction();
                }
                out.done(false);
                break;
            case FAILED:
                asked = false;
                hasFailed = true;
                if (!wasHedged) {
                    // It has no other way to end well, whatever that costs.
                    reconstruct(out);
                }
                failIfHopeless(out);
                break;
            case RECONSTRUCTED:
                over = true;
                if (asked) {
                    out.cancelAsked();
                }
                out.done(true);
                break;
            case NOT_RECONSTRUCTED:
                reconstructing = false;
                failIfHopeless(out);
                break;
            default:
                throw new IllegalArgumentException(kind.toString());
        }
    }

    private void hedge(long nowNs, Out out) {
        boolean isStoreSlow = rates.isStoreSlow(nowNs);
        if (isStoreSlow || !budget.take(costBytes)) {
            if (!isStoreSlow) {
                out.wantsBudget();
            }
            if (!wasDeclined) {
                wasDeclined = true;
                out.declined();
            }
            deadlineNs = nowNs + delayNs;
            delayNs *= 2;
            return;
        }
        reconstruct(out);
    }

    private void reconstruct(Out out) {
        deadlineNs = NEVER;
        wasHedged = true;
        reconstructing = true;
        out.reconstruct();
    }

    private void failIfHopeless(Out out) {
        if (hasFailed && !reconstructing) {
            over = true;
            out.failed();
        }
    }
}
