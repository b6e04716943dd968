package io.paritas.files;

import java.util.BitSet;

/**
 * Reads one stripe: all data lanes and the parity lane at once; of each substripe the first k arrivals win (POCache, §4.2).
 *
 * <p>A substripe that lacks one data lane and has its parity is *covered*. It is decoded when its reader waits for it, when the
 * lane has failed, or when the lane is {@link #LAG} subblocks behind. A lane that is only a little later than the others is
 * left to bring its bytes: decoding in its place costs the cores more than it saves, and so does a lane that skips, which
 * needs a new connection.
 *
 * <p>The first parity is asked for with the data. The others are while a lane is {@link #BEHIND} subblocks and
 * {@link #BEHIND_NS} behind all others that are long enough, has failed, or has a node that is known to be slow; and for a
 * lane that is the only one that has not ended, if it was behind before, or if the reader waits for a request of it that is
 * {@link #BEHIND_NS} old. Lanes that are about as fast as each other do not need them.
 *
 * <p>Pure: time arrives with each event, and what is to be done leaves through {@link Out}. It holds no bytes. A lane has one
 * request at a time, always for its next subblock that nobody has yet. A lane that was overtaken thus skips ahead.
 *
 * <p>Lanes 0 to k-1 are the data lanes, lane k is the parity. Bytes beyond the end of a lane's block count as zero.
 */
public final class StripeRead {
    /** What happened. */
    public enum Kind {
        /** The read begins. */
        START,
        /** A lane's request is complete. `bytes` counts what it fetched. */
        ARRIVED,
        /** The subblock that `decode` asked for is there. */
        DECODED,
        /** It could not be decoded, and its parity is gone. */
        NOT_DECODED,
        /** The cache does not have the parity of this subblock, or it is damaged. */
        ABSENT,
        /** The cache has no parity of this stripe. */
        ABSENT_ALL,
        /** The store failed this lane, after all that the store's own client does about failures. */
        FAILED,
        /** This data lane's node is known to be slow, or the parity is wanted at once whatever the nodes do. */
        SLOW,
        /** The reader waits for this subblock of this data lane, and for no other. Told again while it waits. */
        WANTED,
        /** The reader has gone. */
        STOP
    }

    /** What is to be done. */
    public interface Out {
        void fetch(int lane, int sub);

        /** The lane's request, if there is one, is of no use any more. Nothing more will be asked of the lane. */
        void cancel(int lane);

        /** Reconstructs the subblock of this data lane: XOR of the parity and of all other data lanes. */
        void decode(int sub, int lane);

        /** All data of this subblock is there. */
        void ready(int sub);

        /** This lane's missing subblocks can't be had: the reader must ask the store itself, and gets its error. */
        void lost(int lane);

        /** How fast a lane was. A cancelled lane's figure is an upper bound: its last request had not ended. */
        void sample(int lane, long bytes, long ns, boolean cancelled);
    }

    /** Subblocks that the parity lane may be ahead of the first one that is not ready. Bounds its memory and waste. */
    public static final int PARITY_LEAD = 4;

    /** The parity is fetched beyond the first subblock while a lane is this number of subblocks behind all others. */
    public static final int BEHIND = 3;

    /** And has been so for that long. Threads that wait for a core fall behind too, and catch up sooner. */
    static final long BEHIND_NS = 20_000_000;

    /**
     * If a substripe lacks only one lane whose request is this number of subblocks behind, that lane is not waited for.
     */
    public static final int LAG = 3;

    private static final int IDLE = -1;

    private final int k;
    private final int subs;
    private final int[] laneSubs;
    private final BitSet[] have;
    private final BitSet ready = new BitSet();
    private final BitSet decoding = new BitSet();
    private final BitSet parityHave = new BitSet();
    private final BitSet parityAbsent = new BitSet();
    private final int[] fetching;
    private final boolean[] dead;
    private final boolean[] slow;
    private final boolean[] wasBehind;
    private final boolean[] retried;
    private final boolean[] lost;
    private final long[] startNs;
    private final long[] busyNs;
    private final long[] bytes;
    /** The lane that is behind all others now, and since when. */
    private int behindLane = IDLE;
    private long behindSinceNs;
    private int wantedLane = IDLE;
    private int wantedSub;
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
        for (int lane = 0; lane < k; lane++) {
            have[lane] = new BitSet(subs);
            have[lane].set(laneSubs[lane], subs);
        }
        fetching = new int[k + 1];
        java.util.Arrays.fill(fetching, IDLE);
        dead = new boolean[k + 1];
        slow = new boolean[k];
        wasBehind = new boolean[k];
        retried = new boolean[k + 1];
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

    public boolean isReady(int sub) {
        return ready.get(sub);
    }

    public boolean isLost(int lane) {
        return lost[lane];
    }

    /** Whether all data is there, or the reader has gone. Nothing more will be asked. */
    public boolean isOver() {
        return over;
    }

    public boolean isWhole() {
        return ready.cardinality() == subs;
    }

    /** Whether all data is there or can be decoded at once: no byte more is needed of any lane. */
    public boolean isCovered() {
        for (int sub = ready.nextClearBit(0); sub < subs; sub = ready.nextClearBit(sub + 1)) {
            if (!decoding.get(sub) && !isDecodable(sub)) {
                return false;
            }
        }
        return true;
    }

    /** One event. `lane`, `sub` and `count` (bytes) mean what the kind says, and are ignored otherwise. */
    public void on(long nowNs, Kind kind, int lane, int sub, long count, Out out) {
        switch (kind) {
            case START:
                for (int each = 0; each <= k; each++) {
                    next(nowNs, each, out);
                }
                break;
            case ARRIVED:
                onArrived(nowNs, lane, sub, count, out);
                break;
            case DECODED:
                decoding.clear(sub);
                have[lane].set(sub);
                // Its data lane is of use again if it was slow only here.
                onReady(nowNs, sub, out);
                break;
            case NOT_DECODED:
                decoding.clear(sub);
                parityHave.clear(sub);
                parityAbsent.set(sub);
                onLessRedundancy(nowNs, out);
                for (int each = 0; each <= k; each++) {
                    next(nowNs, each, out);
                }
                break;
            case ABSENT:
                endRequest(nowNs, k, 0);
                parityAbsent.set(sub);
                onLessRedundancy(nowNs, out);
                next(nowNs, k, out);
                break;
            case ABSENT_ALL:
                endRequest(nowNs, k, 0);
                dead[k] = true;
                onLessRedundancy(nowNs, out);
                break;
            case FAILED:
                onFailed(nowNs, lane, out);
                break;
            case SLOW:
                slow[lane] = true;
                break;
            case WANTED:
                wantedLane = lane;
                wantedSub = sub;
                settle(nowNs, sub, out);
                break;
            case STOP:
                end(nowNs, out);
                break;
            default:
                throw new IllegalArgumentException(kind.toString());
        }
        // Any event may have left a lane behind, or moved the parity lane's window.
        next(nowNs, k, out);
        onQuiet(nowNs, out);
    }

    /**
     * If nothing is under way, nothing will happen by itself. Then a live lane is asked for what it lacks. A dead one is asked
     * once more, or lost, though the parity might stand for it: it is outside the parity lane's window, which moves no more.
     */
    private void onQuiet(long nowNs, Out out) {
        if (!isQuiet()) {
            return;
        }
        for (int lane = 0; lane < k; lane++) {
            if (dead[lane]) {
                decodeAll(lane, out);
            } else {
                next(nowNs, lane, out);
            }
        }
        for (int lane = 0; lane < k && isQuiet(); lane++) {
            if (dead[lane] && !lost[lane] && have[lane].nextClearBit(0) < subs) {
                retryOrLose(nowNs, lane, out);
            }
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

    private void onArrived(long nowNs, int lane, int sub, long count, Out out) {
        endRequest(nowNs, lane, count);
        if (over) {
            return;
        }
        if (lane == k) {
            parityHave.set(sub);
        } else if (!decoding.get(sub) || have[lane].get(sub)) {
            have[lane].set(sub);
        }
        settle(nowNs, sub, out);
        if (!over) {
            next(nowNs, lane, out);
        }
    }

    /** Marks a subblock as ready if it is whole. Asks for its decoding if its missing lane is late or waited for. */
    private void settle(long nowNs, int sub, Out out) {
        if (over || ready.get(sub) || decoding.get(sub)) {
            return;
        }
        if (missing(sub) == 0) {
            onReady(nowNs, sub, out);
        } else if (isDecodable(sub)) {
            int lane = missingLane(sub);
            boolean isBehind = dead[lane] || fetching[lane] == IDLE || sub - fetching[lane] >= LAG;
            if (isBehind) {
                decodeAll(lane, out);
            } else if (lane == wantedLane && sub == wantedSub) {
                decode(sub, lane, out);
            }
        }
    }

    /** All that the parity can give instead of this lane. */
    private void decodeAll(int lane, Out out) {
        for (int sub = have[lane].nextClearBit(0); sub < subs; sub = have[lane].nextClearBit(sub + 1)) {
            if (!decoding.get(sub) && isDecodable(sub)) {
                decode(sub, lane, out);
            }
        }
    }

    private void decode(int sub, int lane, Out out) {
        decoding.set(sub);
        out.decode(sub, lane);
    }

    private boolean isDecodable(int sub) {
        return parityHave.get(sub) && missing(sub) == 1;
    }

    private void onReady(long nowNs, int sub, Out out) {
        if (over) {
            return;
        }
        ready.set(sub);
        out.ready(sub);
        if (isWhole()) {
            end(nowNs, out);
        }
    }

    private void onFailed(long nowNs, int lane, Out out) {
        endRequest(nowNs, lane, 0);
        dead[lane] = true;
        onLessRedundancy(nowNs, out);
        if (!over && dead[lane]) {
            decodeAll(lane, out);
        }
    }

    /** A dead lane is asked once more if the parity can't stand for it; then its data is lost to this read. */
    private void onLessRedundancy(long nowNs, Out out) {
        if (over) {
            return;
        }
        for (int lane = 0; lane < k; lane++) {
            if (dead[lane] && !lost[lane] && isNeeded(lane)) {
                retryOrLose(nowNs, lane, out);
            }
        }
    }

    private void retryOrLose(long nowNs, int lane, Out out) {
        if (!retried[lane]) {
            retried[lane] = true;
            dead[lane] = false;
            next(nowNs, lane, out);
        } else {
            lost[lane] = true;
            out.lost(lane);
        }
    }

    /** Whether a subblock of this dead lane has another dead lane beside it, or can't have its parity. */
    private boolean isNeeded(int lane) {
        for (int sub = 0; sub < laneSubs[lane]; sub++) {
            if (ready.get(sub) || decoding.get(sub) || have[lane].get(sub)) {
                continue;
            }
            boolean parity = parityHave.get(sub) || !dead[k] && !parityAbsent.get(sub);
            if (!parity || deadBeside(lane, sub)) {
                return true;
            }
        }
        return false;
    }

    private boolean deadBeside(int lane, int sub) {
        for (int other = 0; other < k; other++) {
            if (other != lane && dead[other] && !have[other].get(sub)) {
                return true;
            }
        }
        return false;
    }

    private void next(long nowNs, int lane, Out out) {
        if (over || dead[lane] || fetching[lane] != IDLE) {
            return;
        }
        int sub = lane == k ? nextParity(nowNs) : nextData(lane);
        if (sub < 0) {
            return;
        }
        fetching[lane] = sub;
        startNs[lane] = nowNs;
        out.fetch(lane, sub);
    }

    private int nextData(int lane) {
        for (int sub = have[lane].nextClearBit(0); sub < laneSubs[lane]; sub = have[lane].nextClearBit(sub + 1)) {
            if (!decoding.get(sub)) {
                return sub;
            }
        }
        return -1;
    }

    private int nextParity(long nowNs) {
        int first = ready.nextClearBit(0);
        int end = Math.min(subs, isLaneBehind(nowNs) ? first + PARITY_LEAD : 1);
        for (int sub = first; sub < end; sub++) {
            if (!ready.get(sub) && !decoding.get(sub) && !parityHave.get(sub) && !parityAbsent.get(sub)) {
                return sub;
            }
        }
        return -1;
    }

    /** Whether the parity can be expected to be of use: lanes that are about as fast as each other do not need it. */
    private boolean isLaneBehind(long nowNs) {
        int last = 0;
        int lastPlace = subs;
        for (int lane = 0; lane < k; lane++) {
            int place = place(lane);
            if (place < subs && (dead[lane] || slow[lane])) {
                return true;
            }
            if (place < lastPlace) {
                lastPlace = place;
                last = lane;
            }
        }
        boolean isAlone = true;
        int placeOfOthers = IDLE;
        for (int lane = 0; lane < k; lane++) {
            if (lane != last) {
                int place = place(lane);
                isAlone &= place == subs;
                // A lane that has ended too soon to be much ahead says nothing of how fast the last one should be.
                if (place < subs || laneSubs[lane] >= lastPlace + BEHIND) {
                    placeOfOthers = placeOfOthers == IDLE ? place : Math.min(placeOfOthers, place);
                }
            }
        }
        boolean isBehind = placeOfOthers - lastPlace >= BEHIND;
        if (!isBehind) {
            behindLane = IDLE;
        } else if (behindLane != last) {
            behindLane = last;
            behindSinceNs = fetching[last] == IDLE ? nowNs : startNs[last];
        }
        isBehind &= nowNs - behindSinceNs >= BEHIND_NS;
        wasBehind[last] |= isBehind;
        return isBehind || isAlone && lastPlace < subs && (wasBehind[last] || isWaitedFor(nowNs, last));
    }

    /** Whether the reader has waited for this lane's request for so long that it may not come soon. */
    private boolean isWaitedFor(long nowNs, int lane) {
        boolean isWanted = lane == wantedLane && !have[lane].get(wantedSub);
        return isWanted && fetching[lane] != IDLE && nowNs - startNs[lane] >= BEHIND_NS;
    }

    /** The subblock that the lane is at. */
    private int place(int lane) {
        int sub = fetching[lane] == IDLE ? nextData(lane) : fetching[lane];
        return sub < 0 ? subs : sub;
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
        throw new AssertionError("no lane misses subblock " + sub);
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
