package io.paritas.files;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

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
    /** A node that is well takes at most 100 ms. */
    private static final long LATE_MS = 300;
    private static final long LOOK_MS = 10;

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
    private static class World implements StripeRead.Out {
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
        /** A reader takes one piece after the other, block by block or cell by cell. */
        final boolean isStriped;
        /** What it wants ahead of its place: all, or a window of so many pieces. */
        int window = Integer.MAX_VALUE;
        int place;
        int firstPlace;
        int endPlace;
        /** Pieces that may be read although nobody wants them, those that were, and requests for more. */
        int budget = Integer.MAX_VALUE;
        int extras;
        int declined;
        int taken;

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
            endPlace = k * machine.subs();
        }

        int lane(int at) {
            return isStriped ? at % k : at / machine.subs();
        }

        int sub(int at) {
            return isStriped ? at / k : at % machine.subs();
        }

        int length(int lane, int sub) {
            return (int) Math.max(0, Math.min(subBytes, laneBytes[lane] - (long) sub * subBytes));
        }

        void at(long delay, StripeRead.Kind kind, int lane, int sub) {
            due.add(new Due(now + delay * MS_NS, order++, kind, lane, sub));
        }

        @Override
        public void fetch(int lane, int sub, boolean isWanted) {
            assertTrue("one request a lane", !inFlight[lane]);
            assertTrue("nothing is asked of a cancelled lane", !cancelled[lane]);
            assertTrue("nothing is asked that is there", lane == k || !machine.has(lane, sub));
            inFlight[lane] = true;
            extras += isWanted ? 0 : 1;
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
        public void settled(int sub) {}

        @Override
        public void lost(int lane) {
            lost.add(lane);
        }

        @Override
        public void sample(int lane, long bytes, long ns, boolean wasCancelled) {
            assertTrue("no lane is faster than its requests", bytes >= 0 && ns > 0);
        }

        @Override
        public long lateNs() {
            return LATE_MS * MS_NS;
        }

        @Override
        public boolean mayRead(int lane, int sub, int pieces, boolean must) {
            boolean may = must || pieces <= budget - taken;
            taken += may ? pieces : 0;
            declined += may ? 0 : 1;
            return may;
        }

        @Override
        public void notRead(int pieces) {
            taken -= pieces;
        }

        /** The reader takes what is there, and wants what is ahead. False if it has all. */
        boolean read() {
            for (; place < endPlace; place++) {
                want();
                int lane = lane(place);
                int sub = sub(place);
                if (!machine.has(lane, sub) && !machine.isLost(lane)) {
                    machine.on(now, StripeRead.Kind.TICK, 0, 0, 0, this);
                    return true;
                }
                if (machine.has(lane, sub)) {
                    int from = sub * subBytes;
                    for (int i = from; i < from + length(lane, sub); i++) {
                        assertEquals("byte " + i + " of lane " + lane, truth[lane][i], got[lane][i]);
                    }
                }
                boolean isUnwanted = machine.onPassed(lane, sub);
                // A decoding uses the row's bytes.
                boolean isInUse = due.stream().anyMatch(next -> next.sub == sub
                        && (next.kind == StripeRead.Kind.DECODED || next.kind == StripeRead.Kind.NOT_DECODED));
                if (window != Integer.MAX_VALUE && isUnwanted && !isInUse && !machine.isOver()) {
                    for (int each = 0; each < k; each++) {
                        Arrays.fill(got[each], Math.min(got[each].length, sub * subBytes),
                                Math.min(got[each].length, (sub + 1) * subBytes), (byte) 0x55);
                    }
                    machine.on(now, StripeRead.Kind.FORGET, 0, sub, 0, this);
                }
            }
            return false;
        }

        private void want() {
            int end = (int) Math.min(endPlace, (long) place + window);
            for (int at = place; at < end && !machine.isOver(); at++) {
                if (!machine.wants(lane(at), sub(at)) && length(lane(at), sub(at)) > 0) {
                    machine.on(now, StripeRead.Kind.WANT, lane(at), sub(at), 0, this);
                }
            }
        }

        /** Runs until nothing is due. */
        void run() {
            place = firstPlace;
            boolean isWaiting = read();
            while (!due.isEmpty() || isWaiting && isToldAgain()) {
                step();
                isWaiting = place < endPlace;
            }
        }

        /** Nothing is due, and the reader looks again later. Whether something is due then. */
        boolean isToldAgain() {
            now += LATE_MS * MS_NS;
            read();
            return !due.isEmpty();
        }

        void step() {
            if (due.peek().ns > now + LOOK_MS * MS_NS) {
                now += LOOK_MS * MS_NS;
                read();
                return;
            }
            Due next = due.poll();
            now = Math.max(now, next.ns);
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

        void assertRead(long seed) {
            assertEquals("seed " + seed + ": all was read", endPlace, place);
            assertTrue("seed " + seed + ": nothing is lost", lost.isEmpty());
            if (window == Integer.MAX_VALUE && firstPlace == 0 && endPlace == k * machine.subs()) {
                assertTrue("seed " + seed + ": all data is there", machine.isWhole());
                assertTrue("seed " + seed + ": the read is over", machine.isOver());
                assertEquals("seed " + seed + ": each row is complete once", machine.subs(), ready.size());
            }
        }
    }

    /** What readers want: all, a window ahead of them, or one piece. */
    private static World world(long seed) {
        World world = new World(seed);
        switch ((int) (seed / 2 % 3)) {
            case 1:
                world.window = 1 + world.random.nextInt(6);
                break;
            case 2:
                world.firstPlace = world.random.nextInt(world.endPlace);
                world.endPlace = world.firstPlace + 1;
                break;
            default:
                break;
        }
        return world;
    }

    @Test
    public void nothingIsWrong() {
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = world(seed);
            world.run();
            world.assertRead(seed);
            assertEquals("seed " + seed + ": nodes that are in time need no parity", 0, world.decodes);
            assertEquals("seed " + seed, 0, world.extras);
        }
    }

    @Test
    public void anyOneLaneMayStallOrFail() {
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = world(seed);
            int bad = world.random.nextInt(world.k);
            world.health[bad] = Health.values()[1 + world.random.nextInt(Health.values().length - 1)];
            world.good[bad] = world.random.nextInt(1 + world.machine.subs());
            world.run();
            world.assertRead(seed);
        }
    }

    @Test
    public void withoutParityItIsAParallelRead() {
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = world(seed);
            world.parity = seed % 3 == 0 ? ParityHealth.ABSENT : seed % 3 == 1 ? ParityHealth.STALLED : ParityHealth.HOLES;
            int bad = world.random.nextInt(world.k);
            world.health[bad] = seed % 4 < 2 ? Health.SLOW : Health.FAILS_ONCE;
            if (world.parity == ParityHealth.STALLED && world.health[bad] != Health.SLOW) {
                continue;
            }
            world.run();
            world.assertRead(seed);
        }
    }

    @Test
    public void whatCannotBeHadIsLostAndTheRestIsThere() {
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = world(seed);
            world.parity = ParityHealth.values()[world.random.nextInt(3)];
            world.undecodable = 1 + world.random.nextInt(4);
            for (int bad = 0; bad < 1 + world.random.nextInt(2); bad++) {
                int lane = world.random.nextInt(world.k);
                world.health[lane] = world.random.nextBoolean() ? Health.FAILS_ALWAYS : Health.FAILS_LATE;
                world.good[lane] = world.random.nextInt(1 + world.machine.subs());
            }
            // The reader compares what it gets, and goes on behind what is lost.
            world.run();
            assertEquals("seed " + seed + ": nobody waits for ever", world.endPlace, world.place);
            for (int lane : world.lost) {
                assertTrue("seed " + seed + ": only what has failed is lost", world.health[lane] != Health.FINE);
            }
        }
    }

    @Test
    public void aReaderThatGoesCancelsEverything() {
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = world(seed);
            world.health[world.random.nextInt(world.k)] = Health.SLOW;
            world.place = world.firstPlace;
            world.read();
            for (int steps = world.random.nextInt(10); steps > 0 && !world.due.isEmpty(); steps--) {
                world.step();
            }
            world.machine.on(world.now, StripeRead.Kind.STOP, 0, 0, 0, world);
            for (int lane = 0; lane <= world.k; lane++) {
                assertTrue("seed " + seed, world.cancelled[lane]);
            }
            // `fetch` asserts that nothing more is asked.
            while (!world.due.isEmpty()) {
                Due next = world.due.poll();
                world.now = Math.max(world.now, next.ns);
                world.machine.on(world.now, next.kind, next.lane, next.sub, 1, world);
            }
        }
    }

    @Test
    public void aNodeThatStandsStillIsNotWaitedForLong() {
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = world(seed);
            int bad = world.random.nextInt(world.k);
            world.health[bad] = Health.STALLED;
            world.run();
            world.assertRead(seed);
            // Each row waits for at most three requests of 100 ms after the node was late once.
            long rows = (long) world.k * world.machine.subs();
            assertTrue("seed " + seed, world.now <= (2 * LATE_MS + 4 * 110 * rows) * MS_NS);
        }
    }

    @Test
    public void aNodeThatIsKnownToBeSlowIsLateFromTheBeginning() {
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = new World(seed);
            int bad = world.random.nextInt(world.k);
            world.health[bad] = Health.STALLED;
            world.firstPlace = bad * (world.isStriped ? 1 : world.machine.subs());
            world.endPlace = world.firstPlace + 1;
            world.machine.on(0, StripeRead.Kind.SLOW, bad, 0, 0, world);
            world.run();
            world.assertRead(seed);
            assertTrue("seed " + seed, world.now < LATE_MS * MS_NS);
        }
    }

    @Test
    public void whatNobodyWantsIsReadWithinTheBudget() {
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = world(seed);
            int bad = world.random.nextInt(world.k);
            world.health[bad] = Health.SLOW;
            world.budget = world.random.nextInt(8);
            world.run();
            world.assertRead(seed);
            assertTrue("seed " + seed, world.extras <= world.budget);
        }
    }

    @Test
    public void ofAFailedNodeBytesAreReconstructedWhateverTheyCost() {
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = world(seed);
            world.health[world.random.nextInt(world.k)] = Health.FAILS_ALWAYS;
            world.budget = 0;
            world.run();
            world.assertRead(seed);
        }
    }

    @Test
    public void whereAllIsWantedAReconstructionCostsNothingButTheParity() {
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = new World(seed);
            world.health[world.random.nextInt(world.k)] = Health.STALLED;
            world.budget = 0;
            world.run();
            world.assertRead(seed);
            assertEquals("seed " + seed, 0, world.extras);
        }
    }

    @Test
    public void withoutParityNothingIsPaid() {
        for (long seed = 0; seed < SEEDS; seed++) {
            World world = world(seed);
            world.parity = ParityHealth.ABSENT;
            world.health[world.random.nextInt(world.k)] = Health.SLOW;
            world.run();
            world.assertRead(seed);
            assertEquals("seed " + seed, 0, world.taken);
            assertEquals("seed " + seed, 0, world.extras);
        }
    }

    @Test
    public void aNodeThatIsInTimeAgainIsNotLate() {
        World world = new World(1) {
            @Override
            public long lateNs() {
                return 10 * MS_NS;
            }
        };
        assertTrue(world.machine.subs() > 2 && world.k > 1);
        world.machine.on(0, StripeRead.Kind.WANT, 0, 0, 0, world);
        world.machine.on(0, StripeRead.Kind.WANT, 0, 1, 0, world);
        world.inFlight[0] = false;
        world.machine.on(20 * MS_NS, StripeRead.Kind.ARRIVED, 0, 0, 16, world);
        assertTrue(world.machine.isAnyLate());
        world.inFlight[0] = false;
        world.machine.on(25 * MS_NS, StripeRead.Kind.ARRIVED, 0, 1, 16, world);
        assertTrue(!world.machine.isAnyLate());
    }
}
