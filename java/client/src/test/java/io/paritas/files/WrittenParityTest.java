package io.paritas.files;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;

/** Real threads between a writer, a steward and a cache, both of which do as the test says. */
public class WrittenParityTest {
    private static final int SUB = 4096;
    private static final int BLOCK = 3 * SUB + 100;
    private static final int K = 3;
    private static final int LENGTH = 4 * BLOCK + 2 * SUB + 5;
    private static final int TIMEOUT_MS = 30_000;
    private static final int SHORT_TIMEOUT_MS = 2_000;
    private static final long PATIENCE_NS = 30_000_000_000L;
    private static final String TOKEN = "0123456789abcdef";
    private static final String ROOM = "*5\r\n:BLOCKS\r\n:7\r\n$16\r\n" + TOKEN + "\r\n:1\r\n:4096\r\n";
    private static final String NO_ROOM = "*5\r\n:0\r\n:0\r\n$0\r\n\r\n:1\r\n:4096\r\n";

    private final Map<String, String> values = new ConcurrentHashMap<>();
    private byte[] version;
    private final Map<String, String> answers = new ConcurrentHashMap<>();
    private volatile boolean isCacheHanging;
    private FakeServer steward;
    private FakeServer cache;
    private FilesClient client;

    @Before
    public void start() throws IOException {
        answers.put("FILES.ROOM", ROOM);
        steward = new FakeServer(words -> answers.getOrDefault(words[0], "+OK\r\n").replace("BLOCKS", words[3]));
        cache = new FakeServer(words -> {
            if (isCacheHanging) {
                return null;
            }
            values.put(words[1], words[2]);
            return "+OK\r\n";
        });
        client = client(40, TIMEOUT_MS);
    }

    @After
    public void end() throws IOException {
        steward.close();
        cache.close();
    }

    private FilesClient client(int pieces, int timeoutMs) {
        FilesClient.Settings settings = new FilesClient.Settings();
        settings.steward = steward.address();
        settings.cache = cache.address();
        settings.namespace = "ns";
        settings.subBytes = SUB;
        settings.readMemoryBytes = (long) pieces * SUB;
        settings.timeoutMs = timeoutMs;
        return FilesClient.of(settings);
    }

    private WrittenParity parity(long lengthMax) {
        return new WrittenParity(client, 77, false, K, BLOCK, 2 * SUB, lengthMax);
    }

    private static byte[] write(WrittenParity parity, int length) {
        byte[] file = new byte[length];
        Random random = new Random(length);
        random.nextBytes(file);
        for (int at = 0; at < length; ) {
            int count = Math.min(length - at, random.nextInt(2 * SUB));
            parity.data(file, at, count);
            at += count;
        }
        return file;
    }

    private void await(WrittenParity parity) throws InterruptedException {
        parity.await(System.nanoTime() + PATIENCE_NS);
        assertTrue("it ends", parity.isOver());
        assertEquals("all memory is given back", 0, client.pieces.reserved());
    }

    /** By stripe and subblock. What the version's key has goes to `version`. */
    private Map<String, byte[]> stored() {
        Map<String, byte[]> stored = new HashMap<>();
        values.forEach((key, value) -> {
            byte[] bytes = value.getBytes(StandardCharsets.ISO_8859_1);
            byte[] header = Arrays.copyOf(bytes, ParityValue.HEADER_BYTES);
            byte[] payload = Arrays.copyOfRange(bytes, ParityValue.HEADER_BYTES, bytes.length);
            assertTrue("whole, and of this key", ParityValue.isOf(new byte[0], key, header, payload, payload.length));
            if (key.equals(ParityValue.versionKey("ns", 77, TOKEN))) {
                version = payload;
                return;
            }
            String[] parts = key.split(":");
            assertEquals("fp:ns:77:" + TOKEN + ":" + parts[4] + ":0:" + parts[6], key);
            stored.put(parts[4] + ":" + parts[6], payload);
        });
        return stored;
    }

    @Test
    public void parityOfAClosedFileIsCommittedWithItsVersion() throws Exception {
        WrittenParity parity = parity(2L * K * BLOCK);
        byte[] file = write(parity, LENGTH);
        parity.end(length -> 0xab);
        await(parity);
        Map<String, byte[]> wanted = ParityWriteTest.plain(file, K, BLOCK, SUB);
        Map<String, byte[]> stored = stored();
        assertEquals(wanted.keySet(), stored.keySet());
        assertArrayEquals("of this version", ParityValue.version(0xab), version);
        wanted.forEach((name, bytes) -> assertArrayEquals(name, bytes, stored.get(name)));
        assertEquals(Collections.singletonList("FILES.ROOM ns 77 2 3 contiguous " + BLOCK), steward.asked("FILES.ROOM"));
        assertEquals(
                Collections.singletonList("FILES.DONE ns 7 COMMIT " + wanted.size() + " 00000000000000ab " + LENGTH),
                steward.asked("FILES.DONE"));
        assertEquals(1, client.counters.writesCommitted.get());
    }

    /** Memory of two sums is enough: one that is made, and one that is sent. */
    @Test
    public void aStripedFileNeedsMemoryOfOneRowAtATime() throws Exception {
        client = client(2, TIMEOUT_MS);
        WrittenParity parity = new WrittenParity(client, 77, true, K, 4 * SUB, 2 * SUB, 1 << 20);
        byte[] file = write(parity, 7 * K * SUB + SUB + 5);
        parity.end(length -> 0xab);
        await(parity);
        Map<String, byte[]> wanted = ParityWriteTest.plainStriped(file, K, 4 * SUB, SUB);
        Map<String, byte[]> stored = stored();
        assertEquals(8, wanted.size());
        assertEquals(wanted.keySet(), stored.keySet());
        wanted.forEach((name, bytes) -> assertArrayEquals(name, bytes, stored.get(name)));
        int blocks = ((1 << 20) + 4 * SUB * K - 1) / (4 * SUB * K);
        assertEquals(
                Collections.singletonList("FILES.ROOM ns 77 " + blocks + " 3 striped " + 4 * SUB), steward.asked("FILES.ROOM"));
        assertEquals(
                Collections.singletonList("FILES.DONE ns 7 COMMIT 8 00000000000000ab " + file.length),
                steward.asked("FILES.DONE"));
    }

    /** It has a row complete before it is known whether parity is wanted at all. */
    @Test
    public void aStripedFileTooShortForParityGivesBackItsMemory() throws Exception {
        WrittenParity parity = new WrittenParity(client, 77, true, K, 4 * SUB, 3L * K * SUB, 1 << 20);
        write(parity, 2 * K * SUB + 1);
        parity.end(length -> 1);
        await(parity);
        assertEquals(Collections.emptyList(), steward.asked("FILES.ROOM"));
        assertEquals(Collections.emptyList(), cache.asked("SET"));
    }

    /** The steward has no room: rows that wait for its answer and those after it are given up. */
    @Test
    public void aStripedFileWithoutRoomStoresNothing() throws Exception {
        answers.put("FILES.ROOM", NO_ROOM);
        WrittenParity parity = new WrittenParity(client, 77, true, K, 4 * SUB, 2L * K * SUB, 1 << 20);
        write(parity, 12 * K * SUB);
        parity.end(length -> 1);
        await(parity);
        assertEquals(1, steward.asked("FILES.ROOM").size());
        assertEquals(Collections.emptyList(), cache.asked("SET"));
        assertEquals(1, client.counters.writesDropped.get());
    }

    @Test
    public void aShortFileCostsNothing() throws Exception {
        WrittenParity parity = parity(2L * K * BLOCK);
        write(parity, 2 * SUB - 1);
        parity.end(length -> 1);
        await(parity);
        assertEquals(Collections.emptyList(), steward.asked("FILES.ROOM"));
        assertEquals(0, client.counters.writesDropped.get());
    }

    /** Its first sums are complete before it is known that no parity is to be made. */
    @Test
    public void aFileTooShortForParityGivesBackTheMemoryOfCompleteSums() throws Exception {
        WrittenParity parity = new WrittenParity(client, 77, false, K, BLOCK, 3L * BLOCK, 6L * BLOCK);
        write(parity, 2 * BLOCK + 2 * SUB);
        assertTrue("sums are held", client.pieces.reserved() > 0);
        parity.end(length -> 1);
        await(parity);
        assertEquals(Collections.emptyList(), steward.asked("FILES.ROOM"));
        assertEquals(0, client.counters.writesDropped.get());
    }

    private void isDropped(WrittenParity parity) throws Exception {
        await(parity);
        assertEquals(Collections.singletonList("FILES.DONE ns 7 DROP"), steward.asked("FILES.DONE"));
        assertEquals(1, client.counters.writesDropped.get());
        assertEquals(0, client.counters.writesCommitted.get());
    }

    @Test
    public void aFileThatIsNotWhatWasWrittenIsDropped() throws Exception {
        WrittenParity parity = parity(2L * K * BLOCK);
        write(parity, LENGTH);
        parity.end(length -> {
            throw new IOException("it was appended to");
        });
        isDropped(parity);
    }

    /** HDFS may be away for minutes. Parity of other files goes on, and so does what readers write. */
    @Test
    public void aStoreThatDoesNotAnswerDelaysNoOtherParity() throws Exception {
        CountDownLatch answers = new CountDownLatch(1);
        CountDownLatch asked = new CountDownLatch(1);
        List<WrittenParity> waiting = new ArrayList<>();
        for (int file = 0; file < 3; file++) {
            WrittenParity parity = parity(2L * K * BLOCK);
            write(parity, LENGTH);
            parity.end(length -> {
                asked.countDown();
                try {
                    assertTrue(answers.await(PATIENCE_NS, TimeUnit.NANOSECONDS));
                } catch (InterruptedException e) {
                    throw new IOException(e);
                }
                return 1;
            });
            waiting.add(parity);
        }
        assertTrue(asked.await(PATIENCE_NS, TimeUnit.NANOSECONDS));
        CountDownLatch written = new CountDownLatch(1);
        assertTrue(client.write(written::countDown));
        assertTrue("readers write", written.await(PATIENCE_NS, TimeUnit.NANOSECONDS));
        assertEquals(Collections.emptyList(), steward.asked("FILES.DONE"));
        answers.countDown();
        for (WrittenParity parity : waiting) {
            parity.await(System.nanoTime() + PATIENCE_NS);
            assertTrue("it ends", parity.isOver());
        }
        assertEquals(3, client.counters.writesCommitted.get());
    }

    /** Only what the file can have counts, or a huge block would take the memory of all its sums. */
    @Test
    public void ofAFileWithHugeBlocksParityIsMadeUpToItsRoom() throws Exception {
        WrittenParity parity = new WrittenParity(client, 77, false, K, (1L << 31) * SUB - SUB, 2 * SUB, 1 << 20);
        byte[] file = write(parity, 5 * SUB + 7);
        parity.end(length -> length == file.length ? 1 : 2);
        await(parity);
        assertEquals(
                Collections.singletonList("FILES.DONE ns 7 COMMIT 6 0000000000000001 " + file.length),
                steward.asked("FILES.DONE"));
    }

    @Test
    public void aFileThatIsNotClosedIsDropped() throws Exception {
        WrittenParity parity = parity(2L * K * BLOCK);
        write(parity, LENGTH);
        parity.fail();
        isDropped(parity);
        parity.end(length -> 1);
        assertEquals(1, steward.asked("FILES.DONE").size());
    }

    @Test
    public void aFileLongerThanItsRoomIsDropped() throws Exception {
        WrittenParity parity = parity(LENGTH - 1);
        write(parity, LENGTH);
        isDropped(parity);
    }

    @Test
    public void aStewardThatForgotIsNotAskedToCommit() throws Exception {
        WrittenParity parity = parity(2L * K * BLOCK);
        write(parity, LENGTH);
        parity.revoke();
        parity.end(length -> 1);
        await(parity);
        assertEquals(Collections.emptyList(), steward.asked("FILES.DONE"));
    }

    @Test
    public void withoutRoomNothingIsStored() throws Exception {
        for (String answer : new String[] {NO_ROOM, "-ERR nobody leads\r\n", ROOM.replace("4096", "8192")}) {
            answers.put("FILES.ROOM", answer);
            WrittenParity parity = parity(2L * K * BLOCK);
            write(parity, LENGTH);
            parity.end(length -> 1);
            await(parity);
            assertEquals(Collections.emptyList(), cache.asked("SET"));
        }
        // Room for parity of other subblocks is given back.
        assertEquals(Collections.singletonList("FILES.DONE ns 7 DROP"), steward.asked("FILES.DONE"));
    }

    @Test
    public void aWriterWaitsForAHangingCacheOnlyOnce() throws Exception {
        isCacheHanging = true;
        // Memory of one block: the second stripe needs what the first one has not sent.
        client = client(4, SHORT_TIMEOUT_MS);
        long start = System.nanoTime();
        WrittenParity parity = parity(1 << 20);
        write(parity, 1 << 19);
        long waitedMs = (System.nanoTime() - start) / 1_000_000;
        parity.end(length -> 1);
        assertTrue("it waits: " + waitedMs, waitedMs >= SHORT_TIMEOUT_MS / 2);
        assertTrue("but not for each of " + (1 << 19) / SUB / K + " subblocks: " + waitedMs, waitedMs < 3 * SHORT_TIMEOUT_MS);
        isDropped(parity);
    }

    @Test
    public void aWriterThatIsFasterThanTheCacheWaitsForItsOwnSums() throws Exception {
        client = client(4, TIMEOUT_MS);
        WrittenParity parity = parity(1 << 20);
        byte[] file = write(parity, 1 << 19);
        parity.end(length -> 1);
        await(parity);
        List<String> done = steward.asked("FILES.DONE");
        int subblocks = ParityWriteTest.plain(file, K, BLOCK, SUB).size();
        assertEquals(Collections.singletonList("FILES.DONE ns 7 COMMIT " + subblocks + " 0000000000000001 " + (1 << 19)), done);
        assertEquals(0, client.counters.writesDeclined.get());
    }
}
