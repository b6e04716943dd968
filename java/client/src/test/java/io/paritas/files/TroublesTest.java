package io.paritas.files;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;

/** What a user is told when a steward or a cache is of no use: one line for each cause, with the setting to change. */
public final class TroublesTest {
    private static final String GRANTED = "*6\r\n$6\r\ncached\r\n:7\r\n$16\r\n0123456789abcdef\r\n:1\r\n:4096\r\n*0\r\n";
    private static final String NO_MOUNT = "-ERR there is no mount laek: add [mount.laek] to the steward's settings\r\n";
    private static final String FULL = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";

    private final Logger logger = Logger.getLogger(Troubles.class.getName());
    private final List<String> logged = Collections.synchronizedList(new ArrayList<>());
    private final Handler handler = new Handler() {
        @Override
        public void publish(LogRecord record) {
            logged.add(record.getLevel() + " " + record.getMessage());
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

    /** An address at which nobody listens. */
    private static String nobody() throws IOException {
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return "127.0.0.1:" + server.getLocalPort();
        }
    }

    private static FilesClient.Settings settings(String steward, String cache) {
        FilesClient.Settings settings = new FilesClient.Settings();
        settings.steward = steward;
        settings.cache = cache;
        settings.namespace = "laek";
        settings.subBytes = 4096;
        settings.readMemoryBytes = 1 << 20;
        return settings;
    }

    /** Opens a file twice, by clients of two sets of settings. Whatever is wrong, it can be read. */
    private static void open(FilesClient.Settings settings) {
        FileParity.File file = new FileParity.File(
                "/a", 16386, 1, 4 << 10, false, 64 << 10, 4, Arrays.asList("a:1", "b:1", "c:1", "d:1"));
        for (int i = 0; i < 2; i++) {
            settings.hedgeShare = i;
            FileParity parity = new FileParity(FilesClient.of(settings), file);
            assertFalse(parity.fetch(0, 0, new byte[4096], 4096));
            parity.close();
        }
    }

    /** The lines with this word. Clients of other tests may find out meanwhile that their servers have ended. */
    private List<String> about(String word) {
        synchronized (logged) {
            List<String> found = new ArrayList<>(logged);
            found.removeIf(line -> !line.contains(word));
            return found;
        }
    }

    private void assertLogged(String word, String begin, String setting) {
        List<String> lines = about(word);
        assertEquals(logged.toString(), 1, lines.size());
        assertTrue(lines.get(0), lines.get(0).startsWith("WARNING " + begin));
        assertTrue(lines.get(0), lines.get(0).contains(setting));
        assertTrue(lines.get(0), lines.get(0).contains("without parity") || lines.get(0).contains("no parity"));
    }

    @Test
    public void aStripeThatDoesNotFitIsLoggedOnceWithWhatToRaise() throws IOException {
        FilesClient client = FilesClient.of(settings(nobody(), nobody()));
        client.onStripeDeclined(client.settings.readMemoryBytes + (777L << 20));
        client.onStripeDeclined(client.settings.readMemoryBytes + (777L << 20));
        List<String> lines = about("declined_for_memory");
        assertEquals(1, lines.size());
        assertTrue(lines.get(0), lines.get(0).contains("778 MiB, and 1 MiB"));
        assertTrue(lines.get(0), lines.get(0).contains("raise fs.paritas.read.memory"));
    }

    @Test
    public void aStewardThatIsNotThere() throws IOException {
        String address = nobody();
        open(settings(address, nobody()));
        assertLogged(address, "the steward at " + address + " cannot be used (Connection refused", "see fs.paritas.steward.");
    }

    @Test
    public void aStewardThatDoesNotAnswer() throws IOException {
        try (FakeServer steward = new FakeServer(words -> null)) {
            FilesClient.Settings settings = settings(steward.address(), nobody());
            settings.timeoutMs = 50;
            open(settings);
            assertLogged(steward.address(), "the steward at " + steward.address() + " has not answered in time: ",
                    "see fs.paritas.steward, or raise fs.paritas.timeout.ms, which is 50.");
        }
    }

    @Test
    public void aSpareThatIsNotThereIsNoTrouble() throws IOException {
        String away = nobody();
        try (FakeServer server = new FakeServer(words -> words[0].equals("FILES.OPEN") ? GRANTED : "$-1\r\n")) {
            open(settings(away + "," + server.address(), server.address()));
            assertEquals(2, server.asked("FILES.OPEN").size());
            assertEquals(Collections.emptyList(), about(away));
            assertEquals(Collections.emptyList(), about(server.address()));
        }
    }

    @Test
    public void aStewardWithoutTheMount() throws IOException {
        try (FakeServer steward = new FakeServer(words -> NO_MOUNT)) {
            open(settings(steward.address(), nobody()));
            String begin = "the steward at " + steward.address() + " has no mount 'laek': ";
            assertLogged(steward.address(), begin, "see fs.paritas.namespace");
        }
    }

    @Test
    public void aServerThatIsNoSteward() throws IOException {
        try (FakeServer cache = new FakeServer(words -> "-ERR unknown command 'FILES.OPEN'\r\n")) {
            open(settings(cache.address(), cache.address()));
            String begin = "the steward at " + cache.address() + " is no steward (ERR unknown command 'FILES.OPEN'): ";
            assertLogged(cache.address(), begin, "see fs.paritas.steward.");
        }
    }

    /** Only of one file: it is no reason to change a setting. */
    @Test
    public void anErrorOfAStewardAboutAFileIsNotLogged() throws IOException {
        try (FakeServer steward = new FakeServer(words -> "-ERR the file has too many blocks\r\n")) {
            open(settings(steward.address(), nobody()));
            assertEquals(2, steward.asked("FILES.OPEN").size());
            assertEquals(Collections.emptyList(), about(steward.address()));
        }
    }

    @Test
    public void aStewardWithOtherSubblocks() throws IOException {
        String other = GRANTED.replace(":4096", ":8192");
        try (FakeServer steward = new FakeServer(words -> words[0].equals("FILES.OPEN") ? other : "+OK\r\n")) {
            open(settings(steward.address(), nobody()));
            String begin = "the steward's subblock has 8192 bytes, this client's 4096: ";
            assertLogged("subblock", begin, "set fs.paritas.subblock.");
        }
    }

    @Test
    public void aCacheThatIsNotThere() throws IOException {
        String address = nobody();
        try (FakeServer steward = new FakeServer(words -> words[0].equals("FILES.OPEN") ? GRANTED : "+OK\r\n")) {
            open(settings(steward.address(), address));
            String begin = "the parity cache at " + address + " cannot be used (Connection refused";
            assertLogged(address, begin, "see fs.paritas.cache.");
        }
    }

    @Test
    public void aCacheThatIsFullOrRefuses() throws IOException {
        for (String[] refusal : new String[][] {
            {FULL, " is full (OOM command"},
            {"-READONLY You can't write against a read only replica.\r\n", " refuses a command (READONLY You"},
            {"-ERR unknown command 'SET'\r\n", " is no parity cache (ERR unknown"},
        }) {
            try (FakeServer cache = new FakeServer(words -> refusal[0])) {
                FilesClient client = FilesClient.of(settings(nobody(), cache.address()));
                for (int i = 0; i < 3; i++) {
                    assertThrows(IOException.class, () -> client.set("key", new byte[4096], 4096, 1));
                }
                String begin = "the parity cache at " + cache.address() + refusal[1];
                assertLogged(cache.address(), begin, "see fs.paritas.cache");
            }
        }
    }

    @Test
    public void aRefusalDoesNotHideAnother() throws IOException {
        String[] refusal = {"-TRYAGAIN later\r\n"};
        try (FakeServer cache = new FakeServer(words -> refusal[0])) {
            FilesClient client = FilesClient.of(settings(nobody(), cache.address()));
            for (String next : new String[] {refusal[0], refusal[0], "-READONLY a replica\r\n"}) {
                refusal[0] = next;
                assertThrows(IOException.class, () -> client.set("key", new byte[4096], 4096, 1));
            }
            assertEquals(2, about(cache.address()).size());
        }
    }

    @Test
    public void oneAddressWithoutTheOther() throws IOException {
        open(settings("", ""));
        assertEquals(Collections.emptyList(), about("is not set"));
        open(settings("", nobody()));
        assertLogged("steward is not set", "fs.paritas.steward is not set", "host:port");
        open(settings(nobody(), ""));
        assertLogged("cache is not set", "fs.paritas.cache is not set", "host:port");
    }
}
