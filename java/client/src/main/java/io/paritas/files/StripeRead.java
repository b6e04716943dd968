package io.paritas.files;

import java.util.Arrays;
import java.util.BitSet;

/**
 * Reads what somebody wants of one stripe. Two sentences are its rule. The node of each wanted piece is asked for it. If that
 * node is late, the parity and the other pieces of the same row are asked for too, and whatever comes first gives the bytes.
 *
 * <p>A piece is a subblock of a data lane; a row is the pieces of the same number in all lanes, and their parity. A node is late
 * if it is known to be slow, if it has failed, or if its request is older than {@link Out#lateNs}, until it brings a piece in
 * time. What a reconstruction needs is mostly wanted anyway where whole stripes are read. What is not must be paid for: see
 * {@link Out#mayRead}. It is asked for when the parity has come.
 *
 * <p>Pure: time arrives with each event, and what is to be done leaves through {@link Out}. It holds no bytes. A lane has one
 * request at a time, always for its first piece that is of use and that nobody has. A lane that was overtaken thus skips ahead.
 *
 * <p>Lanes 0 to k-1 are the data lanes, lane k is the parity. Bytes beyond the end of a lane's block count as zero.
 */
public final class StripeRead {
    /** What happened. */
    public enum Kind {
        /** A reader wants this piece. */
        WANT,
        /** A lane's request is complete. `bytes` counts what it fetched. */
        ARRIVED,
        /** The piece that `decode` asked for is there. */
        DECODED,
        /** It could not be decoded, and its parity is gone. */
        NOT_DECODED,
        /** The cache does not have the parity of this row, or it is damaged. */
        ABSENT,
        /** The cache has no parity of this stripe. */
        ABSENT_ALL,
        /** The store failed this lane, after all that the store's own client does about failures. */
        FAILED,
        /** This data lane's node is known to be slow, or the parity is wanted at once whatever the nodes do. */
        SLOW,
        /** Time has passed while a reader waits. */
        TICK,
        /** The memory of this row is needed for others: its pieces are not there any more. */
        FORGET,
        /** The reader has gone. */
        STOP
    }

    /** What is to be done. */
    public interface Out {
        /** Of data lanes: `isWanted` by a reader, and not only for a reconstruction. */
        void fetch(int lane, int sub, boolean isWanted);

        /** The lane's request, if there is one, is of no use any more. Nothing more will be asked of the lane. */
        void cancel(int lane);

        /** Reconstructs this piece: XOR of the parity and of all other data lanes. */
        void decode(int sub, int lane);

        /** All data of this row is there. */
        void ready(int sub);

        /** Nobody waits for a piece of this row: its parity is of no use. */
        void settled(int sub);

        /** This lane's missing pieces can't be had: the reader must ask the store itself, and gets its error. */
        void lost(int lane);

        /** How fast a lane was. A cancelled lane's figure is an upper bound: its last request had not ended. */
        void sample(int lane, long bytes, long ns, boolean cancelled);

        /** How old a request is when its node counts as late. */
        long lateNs();

        /**
         * Whether so many pieces of this row, which no reader wants, may be read because this lane is late. `must`: it has failed, so there is no
         * other way.
         */
        boolean mayRead(int lane, int sub, int pieces, boolean must);

        /** They were not read: there is no parity. */
        void notRead(int pieces);
    }

    /** Rows of a late lane that are reconstructed at the same time. Bounds memory and waste. */
    public static final int ROWS_MAX = 4;

    private static final int IDLE = -1;

    private final int k;
    private final int subs;
    private final int[] laneSubs;
    private final BitSet[] have;
    private final BitSet[] wanted;
    /** Rows that were complete once. */
    private final BitSet ready = new BitSet();
    private final BitSet decoding = new BitSet();
    /** Rows that are reconstructed, and what was paid for each. */
    private final BitSet rows = new BitSet();
    private final int[] paid;
    private final BitSet parityHave = new BitSet();
    private final BitSet parityAbsent = new BitSet();
    private final int[] fetching;
    private final boolean[] dead;
    private final boolean[] slow;
    private final boolean[] late;
    private final boolean[] retried;
    private final boolean[] lost;
    private final long[] startNs;
    private final long[] busyNs;
    private final long[] bytes;
    private boolean isForgetful;
    private boolean over;

    /** `laneBytes` has the length of each data block of the stripe; `subBytes` is the length of a subblock. */
    public StripeRead(long[] laneBytes, int subBytes) {
        if (laneBytes.length == 0 || subBytes <= 0) {
            throw new IllegalArgumentException("a stripe needs a data lane and a positive subblock");
        }
        k = laneBytes.length;
        laneSubs = new int[k];
        int most = 0;
        for (int lane = 0; lane < k; lane++) {
            laneSubs[lane] = Math.toIntExact((laneBytes[lane] + subBytes - 1) / subBytes);
            most = Math.max(most, laneSubs[lane]);
        }
        subs = most;
        have = new BitSet[k];
        wanted = new BitSet[k];
        for (int lane = 0; lane < k; lane++) {
            wanted[lane] = new BitSet();
            have[lane] = new BitSet();
            have[lane].set(laneSubs[lane], subs);
        }
        paid = new int[subs];
        fetching = new int[k + 1];
        Arrays.fill(fetching, IDLE);
        dead = new boolean[k + 1];
        slow = new boolean[k];
        late = new boolean[k];
        retried = new boolean[k];
        lost = new boolean[k];
        startNs = new long[k + 1];
        busyNs = new long[k + 1];
        bytes = new long[k + 1];
    }

    public int lanes() {
        return k + 1;
    }

    public int subs() {
        return subs;
    }

    public boolean has(int lane, int sub) {
        return have[lane].get(sub);
    }

    public boolean hasParity(int sub) {
        return parityHave.get(sub);
    }

    public boolean wants(int lane, int sub) {
        return wanted[lane].get(sub);
    }

    /** Whether a piece that arrives now is of use. */
    public boolean takes(int lane, int sub) {
        if (over) {
            return false;
        }
        return lane == k ? rows.get(sub) : !have[lane].get(sub) && (wanted[lane].get(sub) || rows.get(sub));
    }

    /** Whether all data of the row is there now. */
    public boolean isComplete(int sub) {
        return missing(sub) == 0;
    }

    public boolean isLost(int lane) {
        return lost[lane];
    }

    /** Whether all data is there, or the reader has gone. Nothing more will be asked. */
    public boolean isOver() {
        return over;
    }

    /** Whether all data of each row was there. */
    public boolean isWhole() {
        return ready.cardinality() == subs;
    }

    /** Whether some node of the stripe is late. */
    public boolean isAnyLate() {
        for (int lane = 0; lane < k; lane++) {
            if (isLate(lane)) {
                return true;
            }
        }
        return false;
    }

    /** Whether no byte more is needed for what is wanted. */
    public boolean isSatisfied() {
        for (int lane = 0; lane < k; lane++) {
            for (int sub = wanted[lane].nextSetBit(0); sub >= 0; sub = wanted[lane].nextSetBit(sub + 1)) {
                if (!have[lane].get(sub) && !decoding.get(sub)) {
                    return false;
                }
            }
        }
        return true;
    }

    /** The reader has passed this piece. Whether nobody wants a piece of its row any more. */
    public boolean onPassed(int lane, int sub) {
        wanted[lane].clear(sub);
        for (int each = 0; each < k; each++) {
            if (wanted[each].get(sub)) {
                return false;
            }
        }
        return true;
    }

    /** One event. `lane`, `sub` and `count` (bytes) mean what the kind says, and are ignored otherwise. */
    public void on(long nowNs, Kind kind, int lane, int sub, long count, Out out) {
        switch (kind) {
            case WANT:
                wanted[lane].set(sub);
                break;
            case ARRIVED:
                onArrived(nowNs, lane, sub, count, out);
                break;
            case DECODED:
                decoding.clear(sub);
                onPiece(lane, sub, out);
                break;
            case NOT_DECODED:
                decoding.clear(sub);
                parityHave.clear(sub);
                parityAbsent.set(sub);
                rows.clear(sub);
                break;
            case ABSENT:
                endRequest(nowNs, k, 0);
                parityAbsent.set(sub);
                endRow(sub, out);
                break;
            case ABSENT_ALL:
                endRequest(nowNs, k, 0);
                dead[k] = true;
                for (int row = rows.nextSetBit(0); row >= 0; row = rows.nextSetBit(row + 1)) {
                    if (!parityHave.get(row)) {
                        endRow(row, out);
                    }
                }
                break;
            case FAILED:
                endRequest(nowNs, lane, 0);
                dead[lane] = true;
                break;
            case SLOW:
                slow[lane] = true;
                break;
            case TICK:
                break;
            case FORGET:
                onForget(sub, out);
                break;
            case STOP:
                end(nowNs, out);
                break;
            default:
                throw new IllegalArgumentException(kind.toString());
        }
        if (!over) {
            plan(nowNs, out);
        }
    }

    private void onArrived(long nowNs, int lane, int sub, long count, Out out) {
        long tookNs = nowNs - startNs[lane];
        endRequest(nowNs, lane, count);
        if (over) {
            return;
        }
        if (lane == k) {
            if (rows.get(sub)) {
                parityHave.set(sub);
            }
            return;
        }
        late[lane] = tookNs >= out.lateNs();
        if (wanted[lane].get(sub) || rows.get(sub)) {
            onPiece(lane, sub, out);
        }
    }

    private void onPiece(int lane, int sub, Out out) {
        if (over || have[lane].get(sub)) {
            return;
        }
        have[lane].set(sub);
        if (missing(sub) == 0 && !ready.get(sub)) {
            ready.set(sub);
            out.ready(sub);
        }
    }

    private void onForget(int sub, Out out) {
        isForgetful = true;
        for (int lane = 0; lane < k; lane++) {
            wanted[lane].clear(sub);
            if (sub < laneSubs[lane]) {
                have[lane].clear(sub);
            }
        }
        parityHave.clear(sub);
        endRow(sub, out);
    }

    private void endRow(int sub, Out out) {
        if (rows.get(sub)) {
            rows.clear(sub);
            if (!parityHave.get(sub) && paid[sub] > 0) {
                out.notRead(paid[sub]);
            }
            parityHave.clear(sub);
            out.settled(sub);
        }
    }

    /** What follows from all that is known now. */
    private void plan(long nowNs, Out out) {
        for (int row = rows.nextSetBit(0); row >= 0; row = rows.nextSetBit(row + 1)) {
            if (!decoding.get(row) && !isWaitedFor(row)) {
                endRow(row, out);
            }
        }
        if (isWhole() && !isForgetful) {
            end(nowNs, out);
            return;
        }
        long lateNs = out.lateNs();
        for (int lane = 0; lane < k; lane++) {
            late[lane] |= fetching[lane] != IDLE && nowNs - startNs[lane] >= lateNs;
            if (isLate(lane)) {
                reconstruct(lane, out);
            }
        }
        decode(out);
        for (int lane = 0; lane < k; lane++) {
            if (dead[lane] && !lost[lane] && isStranded(lane)) {
                retryOrLose(lane, out);
            }
        }
        for (int lane = 0; lane <= k; lane++) {
            next(nowNs, lane, out);
        }
        if (isQuiet()) {
            for (int lane = 0; lane < k; lane++) {
                if (dead[lane] && !lost[lane] && firstMissing(lane, 0) >= 0) {
                    retryOrLose(lane, out);
                    next(nowNs, lane, out);
                }
            }
        }
    }

    private boolean isLate(int lane) {
        return dead[lane] || slow[lane] || late[lane];
    }

    private boolean isWaitedFor(int sub) {
        for (int lane = 0; lane < k; lane++) {
            if (wanted[lane].get(sub) && !have[lane].get(sub)) {
                return true;
            }
        }
        return false;
    }

    /** The first wanted piece from `sub` on that is not there; negative if there is none. */
    private int firstMissing(int lane, int sub) {
        int found = wanted[lane].nextSetBit(sub);
        while (found >= 0 && have[lane].get(found)) {
            found = wanted[lane].nextSetBit(found + 1);
        }
        return found;
    }

    /** Has the first rows reconstructed that a late lane lacks. */
    private void reconstruct(int lane, Out out) {
        int count = 0;
        for (int sub = firstMissing(lane, 0); sub >= 0 && count < ROWS_MAX; sub = firstMissing(lane, sub + 1)) {
            count++;
            if (rows.get(sub) || decoding.get(sub) || dead[k] || parityAbsent.get(sub)) {
                continue;
            }
            int others = 0;
            boolean isPossible = true;
            for (int other = 0; other < k; other++) {
                if (other == lane || have[other].get(sub)) {
                    continue;
                }
                boolean isWanted = wanted[other].get(sub);
                others += isWanted ? 0 : 1;
                isPossible &= !dead[other];
            }
            if (!isPossible) {
                continue;
            }
            if (others > 0 && !out.mayRead(lane, sub, others, dead[lane])) {
                return;
            }
            rows.set(sub);
            paid[sub] = others;
        }
    }

    private void decode(Out out) {
        for (int sub = rows.nextSetBit(0); sub >= 0; sub = rows.nextSetBit(sub + 1)) {
            if (!parityHave.get(sub) || decoding.get(sub) || missing(sub) != 1) {
                continue;
            }
            int lane = missingLane(sub);
            if (wanted[lane].get(sub) && isLate(lane)) {
                decoding.set(sub);
                out.decode(sub, lane);
            }
        }
    }

    /** Whether the parity can't stand for a wanted piece of this dead lane: another dead one lacks its piece too, or there is none. */
    private boolean isStranded(int lane) {
        for (int sub = firstMissing(lane, 0); sub >= 0; sub = firstMissing(lane, sub + 1)) {
            if (decoding.get(sub)) {
                continue;
            }
            boolean parity = parityHave.get(sub) || !dead[k] && !parityAbsent.get(sub);
            if (!parity) {
                return true;
            }
            for (int other = 0; other < k; other++) {
                if (other != lane && dead[other] && !have[other].get(sub)) {
                    return true;
                }
            }
        }
        return false;
    }

    /** A dead lane is asked once more; then its data is lost to this read. */
    private void retryOrLose(int lane, Out out) {
        if (!retried[lane]) {
            retried[lane] = true;
            dead[lane] = false;
            late[lane] = true;
        } else {
            lost[lane] = true;
            out.lost(lane);
        }
    }

    private boolean isQuiet() {
        if (over || !decoding.isEmpty()) {
            return false;
        }
        for (int lane = 0; lane <= k; lane++) {
            if (fetching[lane] != IDLE) {
                return false;
            }
        }
        return true;
    }

    private void next(long nowNs, int lane, Out out) {
        if (over || dead[lane] || fetching[lane] != IDLE) {
            return;
        }
        int sub = lane == k ? nextParity() : nextData(lane);
        if (sub < 0) {
            return;
        }
        fetching[lane] = sub;
        startNs[lane] = nowNs;
        out.fetch(lane, sub, lane == k || wanted[lane].get(sub));
    }

    private int nextData(int lane) {
        for (int sub = have[lane].nextClearBit(0); sub < laneSubs[lane]; sub = have[lane].nextClearBit(sub + 1)) {
            boolean isOfUse = wanted[lane].get(sub) || rows.get(sub) && parityHave.get(sub);
            if (isOfUse && !decoding.get(sub)) {
                return sub;
            }
        }
        return -1;
    }

    private int nextParity() {
        for (int sub = rows.nextSetBit(0); sub >= 0; sub = rows.nextSetBit(sub + 1)) {
            if (!parityHave.get(sub) && !parityAbsent.get(sub)) {
                return sub;
            }
        }
        return -1;
    }

    private int missing(int sub) {
        int missing = 0;
        for (int lane = 0; lane < k; lane++) {
            missing += have[lane].get(sub) ? 0 : 1;
        }
        return missing;
    }

    private int missingLane(int sub) {
        for (int lane = 0; lane < k; lane++) {
            if (!have[lane].get(sub)) {
                return lane;
            }
        }
        throw new AssertionError("no lane misses row " + sub);
    }

    private void endRequest(long nowNs, int lane, long count) {
        if (fetching[lane] == IDLE) {
            return;
        }
        fetching[lane] = IDLE;
        bytes[lane] += count;
        busyNs[lane] += nowNs - startNs[lane];
    }

    private void end(long nowNs, Out out) {
        if (over) {
            return;
        }
        over = true;
        for (int lane = 0; lane <= k; lane++) {
            boolean cancelled = fetching[lane] != IDLE;
            long ns = busyNs[lane] + (cancelled ? nowNs - startNs[lane] : 0);
            fetching[lane] = IDLE;
            if (ns > 0 && lane < k) {
                out.sample(lane, bytes[lane], ns, cancelled);
            }
            out.cancel(lane);
        }
    }
}
