package io.paritas.files;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.After;
import org.junit.Test;

/** Real threads over lanes in memory. */
public class StripeReaderTest {
    private static final int SUB = 4096;
    private static final long PATIENCE_S = 30;

    private final ExecutorService threads = Executors.newCachedThreadPool();

    @After
    public void end() throws InterruptedException {
        threads.shutdown();
        assertTrue("every lane's thread has ended", threads.awaitTermination(PATIENCE_S, TimeUnit.SECONDS));
    }

    private static class Memory implements StripeReader.Source {
        final byte[][] blocks;
        final long[] lengths;
        int stalled = -1;
        /** Its node is known to be slow. */
        int known = -1;
        int failing = -1;
        /** Its reads end with an Error, as they do when the JVM has no memory. */
        int broken = -1;
        boolean isParityBroken;
        boolean isReadyBroken;
        final java.util.Set<String> cancelledNodes = java.util.Collections.synchronizedSet(new java.util.HashSet<>());
        boolean hasParity = true;
        /** Lanes read nothing until so many parities have been asked for. */
        CountDownLatch parityFirst = new CountDownLatch(0);
        boolean damaged;
        /** The parity's check is right, and yet it is not that of these bytes. */
        boolean isForged;
        final AtomicInteger ready = new AtomicInteger();
        final AtomicInteger gone = new AtomicInteger();
        final AtomicInteger stalledReads = new AtomicInteger();
        final AtomicInteger interrupted = new AtomicInteger();
        final CountDownLatch never = new CountDownLatch(1);

        Memory(long seed) {
            Random random = new Random(seed);
            blocks = new byte[1 + random.nextInt(5)][];
            lengths = new long[blocks.length];
            int most = 1 + random.nextInt(20 * SUB);
            for (int i = 0; i < blocks.length; i++) {
                blocks[i] = new byte[i == blocks.length - 1 ? 1 + random.nextInt(most) : most];
                random.nextBytes(blocks[i]);
                lengths[i] = blocks[i].length;
            }
        }

        @Override
        public StripeReader.Lane open(int lane) throws IOException {
            if (lane == failing) {
                throw new IOException("no such block");
            }
            return new StripeReader.Lane() {
                @Override
                public void read(long offset, byte[] into, int length) throws IOException {
                    if (lane == broken) {
                        throw new OutOfMemoryError("Direct buffer memory");
                    }
                    try {
                        parityFirst.await();
                    } catch (InterruptedException e) {
                        throw new IOException(e);
                    }
                    if (lane == stalled) {
                        stalledReads.incrementAndGet();
                        try {
                            never.await();
                        } catch (InterruptedException e) {
                            interrupted.incrementAndGet();
                            throw new IOException(e);
                        }
                    }
                    System.arraycopy(blocks[lane], (int) offset, into, 0, length);
                }

                @Override
                public String node() {
                    return "node" + lane;
                }

                @Override
                public boolean isInterruptible() {
                    return true;
                }

                @Override
                public void close() {}
            };
        }

        @Override
        public boolean hasParity() {
            if (isParityBroken) {
                throw new OutOfMemoryError("Java heap space");
            }
            return hasParity;
        }

        @Override
        public boolean wantsParityFor(int lane) {
            return lane == known;
        }

        @Override
        public boolean parity(int sub, byte[] into, int length) {
            parityFirst.countDown();
            if (damaged) {
                return false;
            }
            java.util.Arrays.fill(into, (byte) 0);
            for (byte[] block : blocks) {
                for (int i = 0; i < SUB && sub * SUB + i < block.length; i++) {
                    into[i] ^= block[sub * SUB + i];
                }
            }
            into[0] ^= isForged ? 1 : 0;
            return true;
        }

        @Override
        public StripeReader.Verdict check(int lane, int sub, byte[] bytes, int length) {
            byte[] right = java.util.Arrays.copyOfRange(blocks[lane], sub * SUB, sub * SUB + length);
            boolean isRight = java.util.Arrays.equals(right, java.util.Arrays.copyOf(bytes, length));
            return isRight ? StripeReader.Verdict.RIGHT : StripeReader.Verdict.WRONG;
        }

        @Override
        public long lateNs() {
            return 20_000_000;
        }

        @Override
        public void onReady(int sub) {
            ready.incrementAndGet();
            if (isReadyBroken) {
                throw new OutOfMemoryError("unable to create native thread");
            }
        }

        @Override
        public void onSample(String node, long bytes, long ns, boolean cancelled) {
            if (cancelled) {
                cancelledNodes.add(node);
            }
        }

        @Override
        public void onDecoded(int bytes) {}

        @Override
        public void onGone() {
            gone.incrementAndGet();
        }
    }

    private StripeReader start(Memory memory, Pieces pieces) {
        return start(memory, pieces, threads);
    }

    /** Of a reader who wants all. */
    private static StripeReader start(Memory memory, Pieces pieces, Executor threads) {
        return wantAll(started(memory, pieces, threads), memory);
    }

    private static StripeReader wantAll(StripeReader reader, Memory memory) {
        for (int sub = 0; sub < reader.subs(); sub++) {
            for (int lane = 0; lane < memory.blocks.length; lane++) {
                assertTrue(sub * SUB >= memory.lengths[lane] || reader.want(lane, sub, 0));
            }
        }
        return reader;
    }

    private static StripeReader started(Memory memory, Pieces pieces, Executor threads) {
        assertTrue(pieces.reserve(StripeReader.bytesNeeded(SUB)));
        StripeReader reader = new StripeReader(memory.lengths, SUB, memory, pieces);
        reader.start(threads);
        return reader;
    }

    private static byte[] all(StripeReader reader, int lane, int length) throws IOException {
        byte[] into = new byte[length];
        int done = 0;
        while (done < length) {
            int count = reader.read(lane, done, into, done, length - done);
            if (count == StripeReader.LOST) {
                return null;
            }
            done += count;
        }
        return into;
    }

    private static void awaitGone(Memory memory, Pieces pieces) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (memory.gone.get() == 0) {
            assertTrue("the memory is given back", System.nanoTime() < deadline);
            Thread.yield();
        }
        assertEquals(0, pieces.reserved());
    }

    @Test(timeout = 60_000)
    public void anyOneLaneMayStallOrFail() throws Exception {
        for (long seed = 0; seed < 200; seed++) {
            Memory memory = new Memory(seed);
            Pieces pieces = new Pieces(SUB, 1 << 30);
            int bad = (int) (seed % (memory.blocks.length + 1)) - 1;
            memory.stalled = seed % 2 == 0 ? bad : -1;
            memory.failing = seed % 2 == 1 ? bad : -1;
            StripeReader reader = start(memory, pieces);
            for (int lane = 0; lane < memory.blocks.length; lane++) {
                assertArrayEquals("seed " + seed, memory.blocks[lane], all(reader, lane, memory.blocks[lane].length));
            }
            reader.stop();
            awaitGone(memory, pieces);
            assertEquals("seed " + seed, memory.stalledReads.get(), memory.interrupted.get());
        }
    }

    @Test(timeout = 60_000)
    public void withDamagedParityALostLaneIsSaidToBeLost() throws Exception {
        for (long seed = 0; seed < 100; seed++) {
            Memory memory = new Memory(seed);
            Pieces pieces = new Pieces(SUB, 1 << 30);
            memory.damaged = seed % 2 == 0;
            memory.hasParity = seed % 2 == 0;
            memory.failing = 0;
            StripeReader reader = start(memory, pieces);
            assertEquals(null, all(reader, 0, memory.blocks[0].length));
            for (int lane = 1; lane < memory.blocks.length; lane++) {
                assertArrayEquals("seed " + seed, memory.blocks[lane], all(reader, lane, memory.blocks[lane].length));
            }
            reader.stop();
            awaitGone(memory, pieces);
        }
    }

    @Test(timeout = 60_000)
    public void whatTheStoreCallsWrongIsNotDelivered() throws Exception {
        for (long seed = 0; seed < 100; seed++) {
            Memory memory = new Memory(seed);
            Pieces pieces = new Pieces(SUB, 1 << 30);
            memory.isForged = true;
            memory.failing = 0;
            StripeReader reader = start(memory, pieces);
            byte[] got = all(reader, 0, memory.blocks[0].length);
            assertEquals("seed " + seed + ": the reader is to ask the store itself", null, got);
            for (int lane = 1; lane < memory.blocks.length; lane++) {
                assertArrayEquals("seed " + seed, memory.blocks[lane], all(reader, lane, memory.blocks[lane].length));
            }
            reader.stop();
            awaitGone(memory, pieces);
        }
    }

    @Test(timeout = 60_000)
    public void aReaderMayGoAtAnyTime() throws Exception {
        for (long seed = 0; seed < 200; seed++) {
            Memory memory = new Memory(seed);
            Pieces pieces = new Pieces(SUB, 1 << 30);
            memory.stalled = (int) (seed % memory.blocks.length);
            memory.hasParity = seed % 3 != 0;
            start(memory, pieces).stop();
            awaitGone(memory, pieces);
        }
    }

    /** The store's own stream would give the reader its Error. Here it must not wait for a thread that has ended. */
    @Test(timeout = 60_000)
    public void aLaneThatEndsWithAnErrorIsStoodForOrLost() throws Exception {
        for (long seed = 0; seed < 100; seed++) {
            Memory memory = new Memory(seed);
            Pieces pieces = new Pieces(SUB, 1 << 30);
            memory.broken = 0;
            memory.isParityBroken = seed % 2 == 0;
            memory.isReadyBroken = seed % 3 == 0;
            StripeReader reader = start(memory, pieces);
            byte[] wanted = memory.isParityBroken ? null : memory.blocks[0];
            assertArrayEquals("seed " + seed, wanted, all(reader, 0, memory.blocks[0].length));
            for (int lane = 1; lane < memory.blocks.length; lane++) {
                assertArrayEquals("seed " + seed, memory.blocks[lane], all(reader, lane, memory.blocks[lane].length));
            }
            reader.stop();
            awaitGone(memory, pieces);
        }
    }

    @Test(timeout = 60_000)
    public void aNodeThatStandsStillIsReported() throws Exception {
        for (long seed = 0; seed < 50; seed++) {
            Memory memory = new Memory(seed);
            Pieces pieces = new Pieces(SUB, 1 << 30);
            memory.stalled = 0;
            StripeReader reader = start(memory, pieces);
            for (int lane = memory.blocks.length - 1; lane >= 0; lane--) {
                all(reader, lane, memory.blocks[lane].length);
            }
            reader.stop();
            awaitGone(memory, pieces);
            if (memory.stalledReads.get() > 0) {
                assertTrue("seed " + seed, memory.cancelledNodes.contains("node0"));
            }
        }
    }

    @Test(timeout = 60_000)
    public void aSystemWithoutThreadsCostsNoMemory() throws Exception {
        for (int has = 0; has < 3; has++) {
            Memory memory = new Memory(1);
            Pieces pieces = new Pieces(SUB, 1 << 30);
            AtomicInteger left = new AtomicInteger(has);
            StripeReader reader = start(memory, pieces, work -> {
                if (left.getAndDecrement() <= 0) {
                    throw new OutOfMemoryError("unable to create native thread");
                }
                threads.execute(work);
            });
            // Or the parity and the lanes that have a thread give the bytes.
            byte[] got = all(reader, 0, memory.blocks[0].length);
            assertTrue(got == null || java.util.Arrays.equals(memory.blocks[0], got));
            reader.stop();
            awaitGone(memory, pieces);
        }
    }

    /** As a stream reads a large file: it wants the next pieces only, and what it has passed is given back. */
    @Test(timeout = 60_000)
    public void aWindowIsReadInLittleMemory() throws Exception {
        for (long seed = 0; seed < 300; seed++) {
            Memory memory = new Memory(seed);
            int k = memory.blocks.length;
            // The window, and rows that are reconstructed.
            int most = 2 + 3 + (StripeRead.ROWS_MAX + 1) * (k + 1);
            Pieces pieces = new Pieces(SUB, (long) most * SUB);
            memory.stalled = seed % 3 == 0 ? (int) (seed % k) : -1;
            memory.failing = seed % 3 == 1 ? (int) (seed % k) : -1;
            StripeReader reader = started(memory, pieces, threads);
            for (int lane = 0; lane < k; lane++) {
                byte[] got = new byte[memory.blocks[lane].length];
                for (int done = 0; done < got.length; ) {
                    for (int sub = done / SUB; sub <= done / SUB + 2 && sub * SUB < got.length; sub++) {
                        reader.want(lane, sub, 0);
                    }
                    int count = reader.read(lane, done, got, done, Math.min(1000, got.length - done));
                    assertTrue("seed " + seed + ": lane " + lane + " at " + done, count > 0);
                    done += count;
                }
                assertArrayEquals("seed " + seed, memory.blocks[lane], got);
            }
            reader.stop();
            awaitGone(memory, pieces);
        }
    }

    /** Parity is made of what is ready. A reader that stops as soon as it has the last byte must not lose the last subblock's. */
    @Test(timeout = 60_000)
    public void aReaderThatHasAllBytesLeavesNoSubblockUnready() throws Exception {
        for (long seed = 0; seed < 3000; seed++) {
            Memory memory = new Memory(seed);
            Pieces pieces = new Pieces(SUB, 1 << 30);
            memory.hasParity = false;
            StripeReader reader = start(memory, pieces);
            for (int lane = 0; lane < memory.blocks.length; lane++) {
                assertArrayEquals("seed " + seed, memory.blocks[lane], all(reader, lane, memory.blocks[lane].length));
            }
            reader.stop();
            awaitGone(memory, pieces);
            assertEquals("seed " + seed, reader.subs(), memory.ready.get());
        }
    }

    /** Else a lane would have to be late first, and here none is: they wait for the parity. */
    @Test(timeout = 60_000)
    public void theParityOfANodeThatIsKnownToBeSlowIsFetchedAhead() throws Exception {
        for (long seed = 0; seed < 200; seed++) {
            Memory memory = new Memory(seed) {
                @Override
                public long lateNs() {
                    return Long.MAX_VALUE;
                }
            };
            Pieces pieces = new Pieces(SUB, 1 << 30);
            memory.known = (int) (seed % memory.blocks.length);
            int subs = (int) ((memory.lengths[memory.known] + SUB - 1) / SUB);
            memory.parityFirst = new CountDownLatch(Math.min(subs, StripeRead.ROWS_MAX));
            StripeReader reader = start(memory, pieces);
            for (int lane = 0; lane < memory.blocks.length; lane++) {
                assertArrayEquals("seed " + seed, memory.blocks[lane], all(reader, lane, memory.blocks[lane].length));
            }
            reader.stop();
            awaitGone(memory, pieces);
        }
    }

    @Test
    public void xorOfSeveralIsThatOfEach() {
        Random random = new Random(1);
        for (int count = 0; count < 4; count++) {
            byte[] into = new byte[50_001];
            random.nextBytes(into);
            byte[] wanted = into.clone();
            byte[][] from = new byte[count][];
            int[] lengths = new int[count];
            for (int each = 0; each < count; each++) {
                from[each] = each == 1 ? null : new byte[into.length];
                lengths[each] = each == 1 ? 0 : random.nextInt(into.length + 1);
                for (int i = 0; i < lengths[each]; i++) {
                    from[each][i] = (byte) random.nextInt();
                    wanted[i] ^= from[each][i];
                }
            }
            ParityValue.xorAll(into, from, lengths);
            assertArrayEquals(wanted, into);
        }
    }

    @Test
    public void memoryIsBounded() {
        Pieces pieces = new Pieces(SUB, 10 * SUB);
        assertTrue(pieces.reserve(6 * SUB));
        assertTrue(!pieces.reserve(5 * SUB));
        assertEquals(1, pieces.declined());
        pieces.release(6 * SUB);
        assertTrue(pieces.reserve(10 * SUB));
    }

    @Test(timeout = 60_000)
    public void whatIsEncodedDecodes() throws Exception {
        for (long seed = 0; seed < 50; seed++) {
            AtomicReference<StripeReader> encoder = new AtomicReference<>();
            AtomicInteger right = new AtomicInteger();
            Memory memory = new Memory(seed) {
                @Override
                public void onReady(int sub) {
                    byte[] encoded = new byte[SUB];
                    byte[] wanted = new byte[SUB];
                    int length = encoder.get().encode(sub, encoded);
                    parity(sub, wanted, length);
                    right.addAndGet(java.util.Arrays.equals(wanted, encoded) ? 1 : 0);
                }
            };
            Pieces pieces = new Pieces(SUB, 1 << 30);
            memory.hasParity = false;
            encoder.set(started(memory, pieces, threads));
            StripeReader reader = wantAll(encoder.get(), memory);
            for (int lane = 0; lane < memory.blocks.length; lane++) {
                all(reader, lane, memory.blocks[lane].length);
            }
            reader.stop();
            awaitGone(memory, pieces);
            assertEquals("seed " + seed, reader.subs(), right.get());
        }
    }
}
