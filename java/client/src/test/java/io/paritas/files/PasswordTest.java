package io.paritas.files;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.function.Function;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;

/** Servers with passwords, right, wrong and missing. */
public final class PasswordTest {
    private static final String NOAUTH = "-NOAUTH Authentication required.\r\n";
    private static final String WRONGPASS = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    private static final String UNNEEDED = "-ERR AUTH <password> called without any password configured for the default user. "
            + "Are you sure your configuration is correct?\r\n";

    private static final long PATIENCE_NS = 20_000_000_000L;

    private final Logger logger = Logger.getLogger(RespPool.class.getName());
    private final List<String> logged = Collections.synchronizedList(new ArrayList<>());
    private final Handler handler = new Handler() {
        @Override
        public void publish(LogRecord record) {
            logged.add(record.getMessage());
        }

        @Override
        public void flush() {}

        @Override
        public void close() {}
    };

    @Before
    public void listen() {
        logger.addHandler(handler);
    }

    @After
    public void leave() {
        logger.removeHandler(handler);
    }

    /** A server with the password `right horse`. It takes one connection, or several that behave alike. */
    private static Function<String[], String> guarded() {
        ThreadLocal<Boolean> isIn = ThreadLocal.withInitial(() -> false);
        return words -> {
            if (words[0].equals("AUTH")) {
                isIn.set(words[1].equals("right horse"));
                return isIn.get() ? "+OK\r\n" : WRONGPASS;
            }
            return isIn.get() ? "+PONG\r\n" : NOAUTH;
        };
    }

    private static RespPool pool(FakeServer server, String password) {
        return new RespPool(server.address(), 5000, new Password("steward", "fs.paritas.steward.password", password));
    }

    private static Object ping(RespPool pool) throws IOException {
        return pool.use(0, connection -> connection.call("PING", "x"));
    }

    @Test
    public void thePasswordIsToldOnceAConnection() throws IOException {
        try (FakeServer server = new FakeServer(guarded())) {
            RespPool pool = pool(server, "right horse");
            assertEquals("PONG", ping(pool));
            assertEquals("PONG", ping(pool));
            assertEquals(Collections.singletonList("AUTH right horse"), server.asked("AUTH"));
            assertEquals(Collections.emptyList(), logged);
        }
    }

    @Test
    public void aWrongOrMissingPasswordNamesTheSetting() throws IOException {
        for (String[] wrong : new String[][] {{"left horse", "refuses the password: mend "}, {"", "needs a password: set "}}) {
            logged.clear();
            try (FakeServer server = new FakeServer(guarded())) {
                RespPool pool = pool(server, wrong[0]);
                String expected = "the steward at " + server.address() + " " + wrong[1] + "fs.paritas.steward.password";
                assertEquals(expected, assertThrows(IOException.class, () -> ping(pool)).getMessage());
                // It is left alone for a while, and the log has one line.
                assertThrows(IOException.class, () -> ping(pool));
                assertEquals(
                        Collections.singletonList(expected + ". Until then files are read and written without parity"), logged);
                assertEquals(wrong[0].isEmpty() ? 0 : 1, server.asked("AUTH").size());
            }
        }
    }

    /** Redis and the steward refuse long commands of clients that are not in by their length. */
    @Test
    public void aCommandThatIsTooLongWithoutAPasswordNamesTheSetting() throws IOException {
        for (String what : new String[] {"multibulk", "bulk"}) {
            String refusal = "-ERR Protocol error: unauthenticated " + what + " length\r\n";
            try (FakeServer server = new FakeServer(words -> refusal)) {
                RespPool pool = pool(server, "");
                String expected = "the steward at " + server.address() + " needs a password: set fs.paritas.steward.password";
                assertEquals(expected, assertThrows(IOException.class, () -> ping(pool)).getMessage());
            }
        }
    }

    @Test
    public void aServerThatBeginsToWantAPasswordIsTold() throws IOException {
        boolean[] wants = {false};
        Function<String[], String> guarded = guarded();
        try (FakeServer server = new FakeServer(words -> wants[0] ? guarded.apply(words) : "+PONG\r\n")) {
            RespPool pool = pool(server, "");
            assertEquals("PONG", ping(pool));
            wants[0] = true;
            assertTrue(assertThrows(IOException.class, () -> ping(pool)).getMessage().contains("needs a password"));
        }
    }

    @Test
    public void aServerWithoutAPasswordIsUsed() throws IOException {
        try (FakeServer server = new FakeServer(words -> words[0].equals("AUTH") ? UNNEEDED : "+PONG\r\n")) {
            RespPool pool = pool(server, "any");
            assertEquals("PONG", ping(pool));
            assertEquals("PONG", ping(pool));
            assertEquals(1, logged.size());
            assertTrue(logged.get(0), logged.get(0).contains("has no password and takes everybody"));
            assertFalse(logged.get(0), logged.get(0).contains("any,"));
        }
    }

    /** A reader or a writer of files gets no error: without the steward or the cache there is no parity. */
    @Test
    public void filesAreReadWithoutParity() throws IOException {
        String granted = "*6\r\n$6\r\ncached\r\n:7\r\n$16\r\n0123456789abcdef\r\n:1\r\n:4096\r\n*0\r\n";
        FileParity.File file = new FileParity.File(
                "/a", 16386, 1, 4 << 10, false, 64 << 10, 4, Arrays.asList("a:1", "b:1", "c:1", "d:1"));
        try (FakeServer steward = new FakeServer(words -> words[0].equals("FILES.OPEN") ? granted : "+OK\r\n");
                FakeServer guarded = new FakeServer(guarded())) {
            FileParity withoutCache = new FileParity(client(steward, guarded), file);
            assertTrue(withoutCache.isCached());
            assertFalse(withoutCache.fetch(0, 0, new byte[4096], 4096));
            // The parity is not bad: others have the right password.
            withoutCache.close();
            long deadlineNs = System.nanoTime() + PATIENCE_NS;
            while (steward.asked("FILES.DONE").isEmpty() && System.nanoTime() < deadlineNs) {
                Thread.yield();
            }
            assertEquals(Collections.singletonList("FILES.DONE ns 7 CLOSE"), steward.asked("FILES.DONE"));
            assertTrue(logged.toString(), logged.toString().contains("mend fs.paritas.cache.password"));

            FileParity withoutSteward = new FileParity(client(guarded, steward), file);
            assertFalse(withoutSteward.isCached());
            assertFalse(withoutSteward.fetch(0, 0, new byte[4096], 4096));
            assertTrue(logged.toString(), logged.toString().contains("mend fs.paritas.steward.password"));
        }
    }

    private static FilesClient client(FakeServer steward, FakeServer cache) {
        FilesClient.Settings settings = new FilesClient.Settings();
        settings.steward = steward.address();
        settings.cache = cache.address();
        settings.namespace = "ns";
        settings.subBytes = 4096;
        settings.readMemoryBytes = 1 << 20;
        settings.stewardPassword = "left horse";
        settings.cachePassword = "left horse";
        return FilesClient.of(settings);
    }
}
