package io.paritas.files;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;

import java.util.Random;
import org.junit.Test;

public class HedgeTest {
    private static final long MS = 1_000_000;
    private static final int SEEDS = 5000;
    private static final long NEVER = Long.MAX_VALUE;

    /** A node and a reconstruction that take their seeded times, or fail after them. */
    private static class World implements Hedge.Out {
        final Hedge hedge;
        long now;
        long nodeAt = NEVER;
        long spareAt = NEVER;
        boolean nodeFails;
        boolean spareFails;
        long nodeMs;
        long spareMs;
        String end = "";
        int reconstructions;
        int declined;
        int wants;

        World(Hedge hedge) {
            this.hedge = hedge;
        }

        @Override
        public void ask() {
            nodeAt = nodeMs == NEVER ? NEVER : now + nodeMs * MS;
        }

        @Override
        public void reconstruct() {
            reconstructions++;
            spareAt = spareMs == NEVER ? NEVER : now + spareMs * MS;
        }

        @Override
        public void cancelAsked() {
            nodeAt = NEVER;
        }

        @Override
        public void cancelReconstruction() {
            spareAt = NEVER;
        }

        @Override
        public void wantsBudget() {
            wants++;
        }

        @Override
        public void done(boolean isReconstructed) {
            assertEquals("it ends once", "", end);
            end = isReconstructed ? "reconstructed" : "arrived";
        }

        @Override
        public void failed() {
            assertEquals("it ends once", "", end);
            end = "failed";
        }

        @Override
        public void declined() {
            declined++;
        }

        void run() {
            hedge.on(now, Hedge.Kind.START, this);
            while (!hedge.isOver()) {
                long next = Math.min(hedge.nextDeadline(), Math.min(nodeAt, spareAt));
                if (next == NEVER) {
                    return;
                }
                now = next;
                if (next == nodeAt) {
                    nodeAt = NEVER;
                    hedge.on(now, nodeFails ? Hedge.Kind.FAILED : Hedge.Kind.ARRIVED, this);
                } else if (next == spareAt) {
                    spareAt = NEVER;
                    hedge.on(now, spareFails ? Hedge.Kind.NOT_RECONSTRUCTED : Hedge.Kind.RECONSTRUCTED, this);
                } else {
                    hedge.on(now, Hedge.Kind.TICK, this);
                }
            }
        }
    }

    private static World world(ByteBudget budget, NodeRates rates, boolean slow, long nodeMs, long spareMs) {
        World world = new World(new Hedge(100, slow, 5 * MS, budget, rates));
        world.nodeMs = nodeMs;
        world.spareMs = spareMs;
        return world;
    }

    /** A bucket that has so many bytes. */
    private static ByteBudget bucket(long most, long bytes) {
        ByteBudget budget = new ByteBudget(0.1, most);
        budget.onGrant(bytes);
        return budget;
    }

    private static ByteBudget plenty() {
        return bucket(1 << 30, 1 << 30);
    }

    @Test
    public void aClientThatHasJustStartedDoesNotHedge() {
        World world = world(new ByteBudget(0.1, 1 << 30), new NodeRates(), true, 500, 7);
        world.run();
        assertEquals("arrived", world.end);
        assertEquals(0, world.reconstructions);
        assertEquals(1, world.declined);
        assertEquals("at 0, 30, 90, 210 and 450 ms of 500", 5, world.wants);
    }

    @Test
    public void aReadWhoseNodeHasFailedIsReconstructedWhateverTheBudget() {
        World world = world(new ByteBudget(0.1, 1 << 30), new NodeRates(), false, 5, 7);
        world.nodeFails = true;
        world.run();
        assertEquals("reconstructed", world.end);
    }

    @Test
    public void aFastNodeIsNotHedged() {
        World world = world(plenty(), new NodeRates(), false, 20, 1);
        world.run();
        assertEquals("arrived", world.end);
        assertEquals(0, world.reconstructions);
    }

    @Test
    public void aStalledNodeIsHedgedAfterFourMediansOrThirtyMs() {
        World world = world(plenty(), new NodeRates(), false, NEVER, 7);
        world.run();
        assertEquals("reconstructed", world.end);
        assertEquals(37 * MS, world.now);
    }

    @Test
    public void aNodeThatIsKnownToBeSlowIsHedgedAtOnce() {
        World world = world(plenty(), new NodeRates(), true, NEVER, 7);
        world.run();
        assertEquals("reconstructed", world.end);
        assertEquals(7 * MS, world.now);
    }

    @Test
    public void whateverHappensItEndsIfTheNodeEnds() {
        Random random = new Random(1);
        for (int seed = 0; seed < SEEDS; seed++) {
            ByteBudget budget = bucket(1 << 20, random.nextBoolean() ? 1 << 19 : 50);
            long nodeMs = random.nextInt(200);
            long spareMs = random.nextInt(4) == 0 ? NEVER : random.nextInt(200);
            World world = world(budget, new NodeRates(), random.nextBoolean(), nodeMs, spareMs);
            world.nodeFails = random.nextBoolean();
            world.spareFails = random.nextBoolean();
            world.run();
            boolean mayWait = world.nodeFails && spareMs == NEVER && world.reconstructions == 1;
            assertTrue("run " + seed + " ends", !world.end.isEmpty() || mayWait);
            assertTrue("run " + seed, world.reconstructions <= 1);
            assertFalse("run " + seed, world.end.equals("arrived") && world.nodeFails);
            assertFalse("run " + seed, world.end.equals("reconstructed") && (world.spareFails || world.reconstructions == 0));
            if (world.end.equals("failed")) {
                assertTrue("run " + seed, world.nodeFails && world.spareFails);
            }
        }
    }

    /** The whole store is slow: what hedges read stays a tenth of what readers read. */
    @Test
    public void aSlowStoreIsNotStormed() {
        long most = 10_000;
        ByteBudget budget = new ByteBudget(0.1, most);
        long read = 0;
        long extra = 0;
        for (int i = 0; i < 10_000; i++) {
            World world = world(budget, new NodeRates(), false, 500, 400);
            world.run();
            extra += 100L * world.reconstructions;
            read += 25;
            budget.onRead(25);
            assertTrue("after " + i, extra <= read / 10 + 1);
        }
        assertTrue("hedging goes on within the budget", extra > read / 20);
    }

    @Test
    public void theCircuitTellsASlowStoreFromASlowNode() {
        NodeRates rates = new NodeRates();
        for (int i = 0; i < 50; i++) {
            for (int node = 0; node < 5; node++) {
                rates.onSample(i * 1000 * MS, "n" + node, 1000, 10);
            }
        }
        assertFalse(rates.isStoreSlow(54_000 * MS));
        for (int node = 0; node < 2; node++) {
            slow(rates, node);
        }
        assertFalse("two of five", rates.isStoreSlow(54_000 * MS));
        slow(rates, 2);
        assertTrue("three of five", rates.isStoreSlow(54_000 * MS));
        World world = world(plenty(), rates, true, 500, 1);
        world.run();
        assertEquals("arrived", world.end);
        assertEquals(0, world.reconstructions);
        assertEquals(1, world.declined);
    }

    @Test
    public void smallRequestsDoNotMakeAStoreSlow() {
        NodeRates rates = new NodeRates();
        for (int i = 0; i < 50; i++) {
            for (int node = 0; node < 5; node++) {
                rates.onSample(i * 1000 * MS, "n" + node, 4 << 20, 40 * MS);
                if (i >= 46) {
                    rates.onSample(i * 1000 * MS, "n" + node, 100, MS);
                }
            }
        }
        assertFalse(rates.isStoreSlow(50_000 * MS));
    }

    @Test
    public void whatWasSlowIsForgotten() {
        NodeRates rates = new NodeRates();
        for (int i = 0; i < 54; i++) {
            for (int node = 0; node < 5; node++) {
                rates.onSample(i * 1000 * MS, "n" + node, 1000, i < 50 ? 10 : 100);
            }
        }
        assertTrue(rates.isStoreSlow(60_000 * MS));
        assertFalse(rates.isStoreSlow(120_000 * MS));
        // So a read that is still waiting is hedged then.
        World world = world(plenty(), rates, false, 600_000, 1);
        world.now = 60_000 * MS;
        world.run();
        assertEquals("reconstructed", world.end);
        assertEquals(1, world.declined);
    }

    @Test
    public void aReadThatWasDeclinedIsHedgedWhenTheBudgetIsFilled() {
        ByteBudget budget = new ByteBudget(0.1, 1000);
        World world = new World(new Hedge(100, false, 5 * MS, budget, new NodeRates())) {
            @Override
            public void declined() {
                super.declined();
                budget.onRead(2000);
            }
        };
        world.nodeMs = NEVER;
        world.spareMs = 7;
        world.run();
        assertEquals("reconstructed", world.end);
        assertEquals(67 * MS, world.now);
        assertEquals(1, world.declined);
    }

    private static void slow(NodeRates rates, int node) {
        for (int i = 50; i < 54; i++) {
            rates.onSample(i * 1000 * MS, "n" + node, 1000, 100);
        }
    }

    @Test
    public void mediansAreOfRequestsOfTheirSize() {
        Latencies latencies = new Latencies();
        assertEquals(0, latencies.medianNs(1000));
        for (int i = 0; i < 100; i++) {
            latencies.onRead(1000, 7);
            latencies.onRead(1 << 20, 900);
        }
        assertEquals(7, latencies.medianNs(1023));
        assertEquals(900, latencies.medianNs(1 << 20));
    }
}
