package io.paritas.hadoop;

import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertTrue;

import io.paritas.files.FakeServer;
import io.paritas.files.FilesClient;
import io.paritas.files.WrittenParity;
import java.util.concurrent.TimeUnit;
import org.junit.Test;

/** What the end of a JVM waits for. */
public class PendingParityTest {
    private static final int SUB = 4096;
    private static final long SHORT_MS = 300;
    private static final long LONG_MS = 30_000;

    /** A JVM closes its file systems one after the other, and has little time for all of them. */
    @Test
    public void afterAWaitThatWasTooShortNoOtherFileSystemWaits() throws Exception {
        String room = "*5\r\n:9\r\n:7\r\n$16\r\n0123456789abcdef\r\n:1\r\n:" + SUB + "\r\n";
        try (FakeServer steward = new FakeServer(words -> words[0].equals("FILES.ROOM") ? room : null);
                FakeServer cache = new FakeServer(words -> "+OK\r\n")) {
            FilesClient.Settings settings = new FilesClient.Settings();
            settings.steward = steward.address();
            settings.cache = cache.address();
            settings.subBytes = SUB;
            settings.readMemoryBytes = 100 * SUB;
            settings.timeoutMs = (int) (4 * LONG_MS);
            FilesClient client = FilesClient.of(settings);
            PendingParity[] fileSystems = new PendingParity[3];
            WrittenParity[] files = new WrittenParity[fileSystems.length];
            for (int i = 0; i < files.length; i++) {
                files[i] = new WrittenParity(client, i, false, 2, 4 * SUB, SUB, 1 << 20);
                fileSystems[i] = new PendingParity();
                fileSystems[i].add(files[i]);
                files[i].data(new byte[3 * SUB], 0, 3 * SUB);
                files[i].end(length -> 1);
            }
            long beginNs = System.nanoTime();
            fileSystems[0].finish(SHORT_MS);
            long waitedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - beginNs);
            assertTrue("it waits for a commit: " + waitedMs + " ms", waitedMs >= SHORT_MS / 2);
            for (int i = 1; i < files.length; i++) {
                fileSystems[i].finish(LONG_MS);
            }
            waitedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - beginNs);
            assertTrue("the others do not: " + waitedMs + " ms", waitedMs < LONG_MS / 2);
            assertFalse("its steward hangs", files[0].isOver());
        }
    }
}
