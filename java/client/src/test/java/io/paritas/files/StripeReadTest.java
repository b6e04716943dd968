package io.paritas.files;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;
import static org.junit.Assert.fail;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.PriorityQueue;
import java.util.Random;
import org.junit.Test;

/** The machine in a world of seeded lanes and a virtual clock: right bytes or the store's error, never a hang. */
public class StripeReadTest {
    private static final int SEEDS = 4000;
    private static final long MS_NS = 1_000_000;

    /** What becomes of a lane's requests in this world. */
    private enum Health {
        FINE,
        SLOW,
        STALLED,
        FAILS_ONCE,
        FAILS_LATE,
        FAILS_ALWAYS
    }

    private enum ParityHealth {
        FINE,
        ABSENT,
        HOLES,
        STALLED
    }

    private static final class Due {
        final long ns;
        final long order;
        final StripeRead.Kind kind;
        final int lane;
        final int sub;

        Due(long ns, long order, StripeRead.Kind kind, int lane, int sub) {
            this.ns = ns;
            this.order = order;
            this.kind = kind;
            this.lane = lane;
            this.sub = sub;
        }
    }

    /** Lanes, cache, decoder and the memory of a reader. */
    private static final class World implements StripeRead.Out {
        final Random random;
        final int k;
        final int subBytes = 16;
        final long[] laneBytes;
        final byte[][] truth;
        final byte[][] got;
        final Health[] health;
        final int[] failures;
        /** Subblocks before that one are there although the lane fails late. */
        final int[] good;
        /** Of this number of decodings one fails. */
        int undecodable = Integer.MAX_VALUE;
        ParityHealth parity = ParityHealth.FINE;
        final StripeRead machine;
        final PriorityQueue<Due> due =
                new PriorityQueue<>((a, b) -> a.ns != b.ns ? Long.compare(a.ns, b.ns) : Long.compare(a.order, b.order));
        final boolean[] inFlight;
        final boolean[] cancelled;
        final List<Integer> lost = new ArrayList<>();
        final List<Integer> ready = new ArrayList<>();
        long now;
        long order;
        int arrivals;
        int decodes;
        /** A reader takes one subblock after the other, block by block or cell by cell. */
        final boolean isStriped;
        int place;

        World(long seed) {
            random = new Random(seed);
            isStriped = seed % 2 == 1;
            k = 1 + random.nextInt(6);
            laneBytes = new long[k];
            int most = 1 + random.nextInt(200);
            for (int lane = 0; lane < k; lane++) {
                laneBytes[lane] = lane == k - 1 ? 1 + random.nextInt(most) : most;
            }
            truth = new byte[k][];
            got = new byte[k][];
            for (int lane = 0; lane < k; lane++) {
                truth[lane] = new byte[(int) laneBytes[lane]];
                random.nextBytes(truth[lane]);
                got[lane] = new byte[(int) laneBytes[lane]];
            }
            health = new Health[k];
            Arrays.fill(health, Health.FINE);
            failures = new int[k];
            good = new int[k];
            inFlight = new boolean[k + 1];
            cancelled = new boolean[k + 1];
            machine = new StripeRead(laneBytes, subBytes);
        }

        int length(int lane, int sub) {
            return (int) Math.max(0, Math.min(subBytes, laneBytes[lane] - (long) sub * subBytes));
        }

        void at(long delay, StripeRead.Kind kind, int lane, int sub) {
            due.add(new Due(now + delay * MS_NS, order++, kind, lane, sub));
        }

        @Override
        public void fetch(int lane, int sub) {
            assertTrue("one request a lane", !inFlight[lane]);
            assertTrue("nothing is asked of a cancelled lane", !cancelled[lane]);
            inFlight[lane] = true;
            long delay = 1 + random.nextInt(100);
            if (lane == k) {
                if (parity == ParityHealth.STALLED) {
                    return;
                }
                boolean absent = parity == ParityHealth.HOLES && random.nextInt(3) == 0;
                at(delay, parity == ParityHealth.ABSENT ? StripeRead.Kind.ABSENT_ALL
                        : absent ? StripeRead.Kind.ABSENT : StripeRead.Kind.ARRIVED, lane, sub);
                return;
            }
            switch (health[lane]) {
                case STALLED:
                    return;
                case SLOW:
                    at(delay * 20, StripeRead.Kind.ARRIVED, lane, sub);
                    return;
                case FAILS_ONCE:
                    at(delay, failures[lane]++ == 0 ? StripeRead.Kind.FAILED : StripeRead.Kind.ARRIVED, lane, sub);
                    return;
                case FAILS_LATE:
                    at(delay, sub < good[lane] ? StripeRead.Kind.ARRIVED : StripeRead.Kind.FAILED, lane, sub);
                    return;
                case FAILS_ALWAYS:
                    at(delay, StripeRead.Kind.FAILED, lane, sub);
                    return;
                default:
                    at(delay, StripeRead.Kind.ARRIVED, lane, sub);
            }
        }

        @Override
        public void cancel(int lane) {
            cancelled[lane] = true;
        }

        @Override
        public void decode(int sub, int lane) {
            byte[] sum = new byte[subBytes];
            for (int each = 0; each < k; each++) {
                for (int i = 0; i < length(each, sub); i++) {
                    // The parity as it was encoded, then every other lane as it has arrived.
                    sum[i] ^= truth[each][sub * subBytes + i];
                    if (each != lane) {
                        assertTrue("only what has arrived is used", machine.has(each, sub));
                        sum[i] ^= got[each][sub * subBytes + i];
                    }
                }
            }
            assertTrue("the parity has arrived", machine.hasParity(sub));
            decodes++;
            if (decodes % undecodable == 0) {
                at(random.nextInt(5), StripeRead.Kind.NOT_DECODED, lane, sub);
                return;
            }
            System.arraycopy(sum, 0, got[lane], sub * subBytes, length(lane, sub));
            at(random.nextInt(5), StripeRead.Kind.DECODED, lane, sub);
        }

        @Override
        public void ready(int sub) {
            ready.add(sub);
        }

        @Override
        public void lost(int lane) {
            lost.add(lane);
        }

        @Override
        public void sample(int lane, long bytes, long ns, boolean wasCancelled) {
            assertTrue("no lane is faster than its requests", bytes >= 0 && ns > 0);
        }

        /** The reader takes what is there, and says what it waits for. False if it has all. */
        boolean read() {
            for (; place < k * machine.subs(); place++) {
                int lane = isStriped ? place % k : place / machine.subs();
                int sub = isStriped ? place / k : place % machine.subs();
                if (!machine.has(lane, sub) && !machine.isLost(lane)) {
                    machine.on(now, StripeRead.Kind.WANTED, lane, sub, 0, this);
                    return true;
                }
            }
            return false;
        }

        void start() {
            machine.on(now, StripeRead.Kind.START, 0, 0, 0, this);
            read();
        }

        /** Runs until nothing is due. */
        void run() {
            start();
            while (!due.isEmpty() || isToldAgain()) {
                step();
            }
        }

        /** Nothing is due, and the reader says once more what it waits for. Whether something is due then. */
        boolean isToldAgain() {
            now += StripeRead.BEHIND_NS;
            read();
            return !due.isEmpty();
        }

        void step() {
            if (due.peek().ns > now + StripeRead.BEHIND_NS) {
                now += StripeRead.BEHIND_NS;
                if (read()) {
                    return;
                }
            }
            Due next = due.poll();
            now = next.ns;
            if (next.kind != StripeRead.Kind.DECODED && next.kind != StripeRead.Kind.NOT_DECODED) {
                inFlight[next.lane] = false;
                if (cancelled[next.lane] && random.nextBoolean()) {
                    return;
                }
            }
            if (next.kind == StripeRead.Kind.ARRIVED && next.lane < k) {
                arrivals++;
                int from = next.sub * subBytes;
                System.arraycopy(truth[next.lane], from, got[next.lane], from, length(next.lane, next.sub));
            }
            long count = next.lane < k ? length(next.lane, next.sub) : subBytes;
            machine.on(now, next.kind, next.lane, next.sub, count, this);
            read();
        }

        void assertWhole(long seed) {
            assertTrue("seed " + seed + ": all data is there", machine.isWhole());
            assertTrue("seed " + seed + ": the read is over", machine.isOver());
            for (int lane = 0; lane < k; lane++) {
                assertTrue("seed " + seed + ": lane " + lane, Arrays.equals(truth[lane], got[lane]));
            }
            assertEquals("seed " + seed + ": each subblock is ready once", machine.subs(), ready.size());
        }
    }

    @Test
    public void nothingIsWrong() {
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = new World(seed);
            world.run();
            world.assertWhole(seed);
            assertTrue(world.lost.isEmpty());
        }
    }

    @Test
    public void anyOneLaneMayStallOrFail() {
        Health[] bad = {Health.SLOW, Health.STALLED, Health.FAILS_ONCE, Health.FAILS_ALWAYS};
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = new World(seed);
            world.health[world.random.nextInt(world.k)] = bad[world.random.nextInt(bad.length)];
            world.run();
            world.assertWhole(seed);
            assertTrue(world.lost.isEmpty());
        }
    }

    @Test
    public void withoutParityItIsAParallelRead() {
        ParityHealth[] bad = {ParityHealth.ABSENT, ParityHealth.HOLES, ParityHealth.STALLED};
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = new World(seed);
            world.parity = bad[world.random.nextInt(bad.length)];
            Health health = world.random.nextBoolean() ? Health.SLOW : Health.FAILS_ONCE;
            // A lane that fails needs a parity that answers, if only by saying no.
            if (world.parity != ParityHealth.STALLED || health == Health.SLOW) {
                world.health[world.random.nextInt(world.k)] = health;
            }
            world.run();
            world.assertWhole(seed);
            assertTrue(world.lost.isEmpty());
        }
    }

    @Test
    public void whatCannotBeHadIsLostAndTheRestIsThere() {
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = new World(seed);
            boolean hasParity = world.random.nextBoolean() && world.k > 1;
            world.parity = hasParity ? ParityHealth.FINE : ParityHealth.ABSENT;
            int bad = world.random.nextInt(world.k);
            world.health[bad] = Health.FAILS_ALWAYS;
            int second = (bad + 1) % world.k;
            if (hasParity) {
                world.health[second] = Health.FAILS_ALWAYS;
            }
            world.run();
            for (int lane = 0; lane < world.k; lane++) {
                boolean isBad = world.health[lane] == Health.FAILS_ALWAYS;
                for (int sub = 0; sub * world.subBytes < world.laneBytes[lane]; sub++) {
                    boolean there = world.machine.has(lane, sub);
                    String what = "seed " + seed + ", lane " + lane + ", subblock " + sub;
                    assertTrue(what + " is there, or its lane is lost", there || isBad && world.lost.contains(lane));
                    if (there) {
                        int from = sub * world.subBytes;
                        for (int i = from; i < from + world.length(lane, sub); i++) {
                            assertEquals(what, world.truth[lane][i], world.got[lane][i]);
                        }
                    }
                }
            }
        }
    }

    @Test
    public void aReaderThatGoesCancelsEverything() {
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = new World(seed);
            world.start();
            for (int steps = world.random.nextInt(20); steps > 0 && !world.due.isEmpty(); steps--) {
                world.step();
            }
            world.machine.on(world.now, StripeRead.Kind.STOP, 0, 0, 0, world);
            assertTrue("seed " + seed, world.machine.isOver());
            for (int lane = 0; lane <= world.k; lane++) {
                assertTrue("seed " + seed + ": lane " + lane, world.cancelled[lane]);
            }
            while (!world.due.isEmpty()) {
                world.step();
            }
        }
    }

    /** A lane at a seventh of the rate must not be waited for: the time is that of the others, give or take a request. */
    @Test
    public void aSlowLaneIsNotWaitedFor() {
        for (long seed = 0; seed < SEEDS; seed++) {
            World slow = new World(seed);
            slow.health[slow.k - 1] = Health.SLOW;
            slow.run();
            if (slow.k > 1) {
                long last = (slow.machine.subs() * 100L + 500) * MS_NS;
                slow.assertWhole(seed);
                assertTrue("seed " + seed + " took " + overAt(seed), overAt(seed) <= last);
            }
        }
    }

    private static long overAt(long seed) {
        World slow = new World(seed);
        slow.health[slow.k - 1] = Health.SLOW;
        slow.start();
        while (!slow.machine.isOver()) {
            slow.step();
        }
        return slow.now;
    }

    /** Nothing is fetched twice, but for the lane that was asked once more; the parity never runs far ahead. */
    @Test
    public void extraBytesAreAtMostTheParity() {
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = new World(seed);
            world.run();
            int wanted = 0;
            for (long bytes : world.laneBytes) {
                wanted += (int) ((bytes + world.subBytes - 1) / world.subBytes);
            }
            assertTrue("seed " + seed + ": " + world.arrivals + " of " + wanted, world.arrivals <= wanted);
        }
    }

    /**
     * Lanes that are all as fast as each other, in blocks of any length, as those of a file's last stripe are. Their reader takes
     * what comes in the order of the file, and nothing of the parity is read but the first subblock.
     */
    @Test
    public void ofHealthyLanesNoParityIsReadHoweverShortTheyAre() {
        for (long seed = 0; seed < SEEDS; seed++) {
            Random random = new Random(seed);
            long[] laneBytes = new long[1 + random.nextInt(6)];
            int stripe = random.nextInt(16 * 40 * laneBytes.length) + 1;
            for (int lane = 0; lane < laneBytes.length; lane++) {
                laneBytes[lane] = Math.max(0, Math.min(16 * 40, stripe - lane * 16 * 40));
            }
            int lanes = laneBytes.length;
            int[] asked = new int[lanes + 1];
            Arrays.fill(asked, -1);
            int[] parities = new int[1];
            StripeRead machine = new StripeRead(laneBytes, 16);
            StripeRead.Out out = new Quiet() {
                @Override
                public void fetch(int lane, int sub) {
                    asked[lane] = sub;
                    parities[0] += lane == lanes ? 1 : 0;
                }

                @Override
                public void cancel(int lane) {
                    asked[lane] = -1;
                }

                @Override
                public void decode(int sub, int lane) {
                    fail("nothing is decoded");
                }
            };
            machine.on(0, StripeRead.Kind.START, 0, 0, 0, out);
            for (long now = 1; !machine.isOver(); now += StripeRead.BEHIND_NS / 2) {
                int[] due = asked.clone();
                for (int lane = 0; lane < lanes; lane++) {
                    // The reader has all that has come, and waits for the next.
                    int wanted = 0;
                    while (wanted < machine.subs() && machine.has(lane, wanted)) {
                        wanted++;
                    }
                    if (wanted < machine.subs()) {
                        machine.on(now, StripeRead.Kind.WANTED, lane, wanted, 0, out);
                        break;
                    }
                }
                for (int lane = 0; lane <= lanes; lane++) {
                    if (due[lane] >= 0 && asked[lane] == due[lane]) {
                        asked[lane] = -1;
                        machine.on(now, StripeRead.Kind.ARRIVED, lane, due[lane], 16, out);
                    }
                }
            }
            assertTrue("seed " + seed + ": " + parities[0] + " subblocks of parity", parities[0] <= 1);
        }
    }

    /** Whatever fails, early or late: a lane has all its bytes in the end, or its reader is told to ask the store. */
    @Test
    public void anyLanesMayFailAtAnyTimeAndNobodyWaitsForEver() {
        Health[] all = {Health.FINE, Health.SLOW, Health.FAILS_ONCE, Health.FAILS_LATE, Health.FAILS_ALWAYS};
        ParityHealth[] parity = {ParityHealth.FINE, ParityHealth.ABSENT, ParityHealth.HOLES};
        for (long seed = 0; seed < 4 * SEEDS; seed++) {
            World world = new World(seed);
            world.parity = parity[world.random.nextInt(parity.length)];
            world.undecodable = world.random.nextBoolean() ? 1 + world.random.nextInt(3) : Integer.MAX_VALUE;
            for (int lane = 0; lane < world.k; lane++) {
                world.health[lane] = all[world.random.nextInt(all.length)];
                world.good[lane] = world.random.nextInt(world.machine.subs());
            }
            world.run();
            for (int lane = 0; lane < world.k; lane++) {
                for (int sub = 0; sub < world.machine.subs(); sub++) {
                    String what = "seed " + seed + ", lane " + lane + ", subblock " + sub;
                    assertTrue(what, world.machine.has(lane, sub) || world.machine.isLost(lane));
                    int from = sub * world.subBytes;
                    for (int i = from; world.machine.has(lane, sub) && i < from + world.length(lane, sub); i++) {
                        assertEquals(what, world.truth[lane][i], world.got[lane][i]);
                    }
                }
            }
        }
    }

    /** A stripe's last lane is short and lost, so the parity's window stays at the beginning. Then the other one fails. */
    @Test
    public void aLaneThatFailsOutsideTheWindowOfTheParityIsLost() {
        Trace trace = new Trace(8 * 16, 16);
        trace.on(StripeRead.Kind.ARRIVED, 0, 0);
        trace.on(StripeRead.Kind.ABSENT, 2, 0);
        trace.on(StripeRead.Kind.FAILED, 1, 0);
        trace.on(StripeRead.Kind.FAILED, 1, 0);
        assertTrue(trace.machine.isLost(1));
        for (int sub = 1; sub <= StripeRead.PARITY_LEAD; sub++) {
            trace.on(StripeRead.Kind.ARRIVED, 0, sub);
            if (sub < StripeRead.PARITY_LEAD) {
                trace.on(StripeRead.Kind.ARRIVED, 2, sub);
            }
        }
        trace.on(StripeRead.Kind.FAILED, 0, 5);
        assertEquals("it is asked once more", 5, trace.fetched[0]);
        trace.on(StripeRead.Kind.FAILED, 0, 5);
        assertTrue("then its reader asks the store", trace.machine.isLost(0));
    }

    /** What a test does not look at. */
    private abstract static class Quiet implements StripeRead.Out {
        @Override
        public void cancel(int lane) {}

        @Override
        public void decode(int sub, int lane) {}

        @Override
        public void ready(int sub) {}

        @Override
        public void lost(int lane) {}

        @Override
        public void sample(int lane, long bytes, long ns, boolean cancelled) {}
    }

    /** A machine of two lanes whose answers are written down in a test. */
    private static final class Trace extends Quiet {
        final StripeRead machine;
        final int[] fetched = new int[3];

        Trace(long... laneBytes) {
            machine = new StripeRead(laneBytes, 16);
            on(StripeRead.Kind.START, 0, 0);
        }

        void on(StripeRead.Kind kind, int lane, int sub) {
            fetched[lane] = kind == StripeRead.Kind.FAILED ? -1 : fetched[lane];
            machine.on(1, kind, lane, sub, 16, this);
        }

        @Override
        public void fetch(int lane, int sub) {
            fetched[lane] = sub;
        }
    }

    /** Two data lanes of five subblocks, and what the machine asks for. */
    private static final class Pair extends Quiet {
        final StripeRead machine = new StripeRead(new long[] {80, 80}, 16);
        final List<String> decoded = new ArrayList<>();
        final int[] fetched = new int[3];
        long now = StripeRead.BEHIND_NS;

        Pair() {
            machine.on(0, StripeRead.Kind.START, 0, 0, 0, this);
        }

        void arrive(int lane, int sub) {
            machine.on(now, StripeRead.Kind.ARRIVED, lane, sub, 16, this);
        }

        void want(int lane, int sub) {
            machine.on(now, StripeRead.Kind.WANTED, lane, sub, 0, this);
        }

        @Override
        public void fetch(int lane, int sub) {
            fetched[lane] = sub;
        }

        @Override
        public void decode(int sub, int lane) {
            decoded.add(lane + ":" + sub);
        }
    }

    @Test
    public void aLaneThatIsALittleLaterBringsItsBytes() {
        Pair pair = new Pair();
        for (int sub = 0; sub < 5; sub++) {
            pair.arrive(2, sub);
            pair.arrive(0, sub);
            assertEquals("the later lane goes on in order", sub, pair.fetched[1]);
            pair.arrive(1, sub);
        }
        assertTrue(pair.machine.isWhole());
        assertEquals(new ArrayList<String>(), pair.decoded);
    }

    @Test
    public void aLaneThatFallsBehindIsDecodedAndSkips() {
        Pair pair = new Pair();
        for (int sub = 0; sub < StripeRead.LAG; sub++) {
            pair.arrive(2, sub);
            pair.arrive(0, sub);
        }
        assertTrue("it is not yet behind: " + pair.decoded, pair.decoded.isEmpty());
        pair.arrive(2, 3);
        pair.arrive(0, 3);
        assertEquals(Arrays.asList("1:0", "1:1", "1:2", "1:3"), pair.decoded);
        pair.arrive(1, 0);
        assertEquals("what is decoded is not fetched", 4, pair.fetched[1]);
    }

    @Test
    public void whatAReaderWaitsForIsDecodedAtOnce() {
        Pair before = new Pair();
        before.want(1, 0);
        before.arrive(0, 0);
        before.arrive(2, 0);
        assertEquals(Arrays.asList("1:0"), before.decoded);
        Pair after = new Pair();
        after.arrive(0, 0);
        after.arrive(2, 0);
        after.want(1, 0);
        assertEquals(Arrays.asList("1:0"), after.decoded);
    }

    @Test
    public void aLaneThatFailsIsDecodedAtOnce() {
        Pair pair = new Pair();
        pair.arrive(0, 0);
        pair.arrive(2, 0);
        pair.machine.on(1, StripeRead.Kind.FAILED, 1, 0, 0, pair);
        pair.arrive(2, 1);
        pair.arrive(0, 1);
        assertEquals(Arrays.asList("1:0", "1:1"), pair.decoded);
    }

    @Test
    public void ofLanesThatAreAboutAsFastOnlyTheFirstParityIsFetched() {
        Pair pair = new Pair();
        assertEquals("the first is asked for with the data", 0, pair.fetched[2]);
        pair.arrive(2, 0);
        for (int sub = 0; sub < 5; sub++) {
            if (sub > 0) {
                pair.arrive(1, sub - 1);
            }
            assertEquals(0, pair.fetched[2]);
            pair.arrive(0, sub);
        }
        assertEquals("the other lane will bring its last subblock", 0, pair.fetched[2]);
        pair.want(1, 4);
        assertEquals("the reader waits for it, but not for long", 0, pair.fetched[2]);
        pair.now += StripeRead.BEHIND_NS;
        pair.want(1, 4);
        assertEquals("the reader waits for it", 4, pair.fetched[2]);
    }

    /** The last stripe of a file, whose first block is on a node that stands still from the beginning. */
    @Test
    public void aShortLaneThatHasEndedHidesNoLaneThatStandsStill() {
        for (int shortSubs = 0; shortSubs <= 5; shortSubs++) {
            int[] parity = {0};
            StripeRead machine = new StripeRead(new long[] {16 * 128, 16 * 128, 16 * shortSubs}, 16);
            StripeRead.Out out = new Quiet() {
                @Override
                public void fetch(int lane, int sub) {
                    parity[0] = lane == 3 ? sub : parity[0];
                }
            };
            machine.on(0, StripeRead.Kind.START, 0, 0, 0, out);
            machine.on(1, StripeRead.Kind.ARRIVED, 3, 0, 16, out);
            for (int sub = 0; sub < shortSubs; sub++) {
                machine.on(1, StripeRead.Kind.ARRIVED, 2, sub, 16, out);
            }
            for (int sub = 0; sub < StripeRead.BEHIND; sub++) {
                machine.on(StripeRead.BEHIND_NS, StripeRead.Kind.ARRIVED, 1, sub, 16, out);
            }
            assertEquals("a last block of " + shortSubs + " subblocks", 1, parity[0]);
        }
    }

    @Test
    public void theParityIsFetchedWhileALaneIsBehind() {
        Pair pair = new Pair();
        pair.arrive(2, 0);
        for (int sub = 0; sub < StripeRead.BEHIND; sub++) {
            assertEquals("not yet behind", 0, pair.fetched[2]);
            pair.arrive(0, sub);
        }
        assertEquals("behind", 1, pair.fetched[2]);
        pair.arrive(1, 0);
        pair.arrive(2, 1);
        assertEquals("less behind", 1, pair.fetched[2]);
        pair.now += StripeRead.BEHIND_NS;
        pair.arrive(0, StripeRead.BEHIND);
        assertEquals("behind again", 2, pair.fetched[2]);
    }

    @Test
    public void aLaneThatCatchesUpSoonIsNotBehind() {
        Pair pair = new Pair();
        pair.now = StripeRead.BEHIND_NS - 1;
        pair.arrive(2, 0);
        for (int sub = 0; sub < 4; sub++) {
            pair.arrive(0, sub);
        }
        assertEquals(0, pair.fetched[2]);
        pair.arrive(1, 0);
        assertEquals("four behind, then three", 0, pair.fetched[2]);
        pair.now++;
        pair.want(0, 4);
        assertEquals("behind for long enough now", 1, pair.fetched[2]);
    }

    @Test
    public void aLaneThatWasBehindMayNotBringItsLastSubblocks() {
        Pair pair = new Pair();
        pair.arrive(2, 0);
        for (int sub = 0; sub < 5; sub++) {
            pair.arrive(0, sub);
        }
        for (int sub = 1; sub < 3; sub++) {
            pair.arrive(2, sub);
        }
        for (int sub = 0; sub < 3; sub++) {
            pair.arrive(1, sub);
        }
        assertEquals("no more than two behind", 3, pair.fetched[2]);
        pair.arrive(2, 3);
        assertEquals(4, pair.fetched[2]);
    }

    @Test
    public void ofALaneThatIsKnownToBeSlowTheParityIsFetchedAhead() {
        Pair pair = new Pair();
        pair.machine.on(1, StripeRead.Kind.SLOW, 1, 0, 0, pair);
        for (int sub = 0; sub < StripeRead.PARITY_LEAD; sub++) {
            assertEquals(sub, pair.fetched[2]);
            pair.arrive(2, sub);
        }
    }

    @Test
    public void ofALaneThatFailsTheParityIsFetchedAhead() {
        Pair pair = new Pair();
        pair.arrive(2, 0);
        pair.machine.on(1, StripeRead.Kind.FAILED, 1, 0, 0, pair);
        assertEquals(1, pair.fetched[2]);
    }

    @Test
    public void aReadIsCoveredWhenNoLaneIsNeeded() {
        Pair pair = new Pair();
        for (int sub = 0; sub < 5; sub++) {
            assertTrue(!pair.machine.isCovered());
            pair.arrive(2, sub);
            pair.arrive(0, sub);
            if (sub < 4) {
                pair.arrive(1, sub);
            }
        }
        assertTrue(pair.machine.isCovered() && !pair.machine.isWhole());
    }
}
