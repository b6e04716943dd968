package io.paritas.files;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.Test;

/** The bytes to and from steward and cache, against scripted answers. */
public class WireTest {
    /** Answers each command, whatever it is, with the next of its texts, and remembers what was asked. */
    private static final class Script implements AutoCloseable {
        final ServerSocket server = new ServerSocket(0, 5, InetAddress.getLoopbackAddress());
        final StringBuilder asked = new StringBuilder();

        Script(String... answers) throws IOException {
            Thread thread = new Thread(() -> {
                try (Socket socket = server.accept()) {
                    for (String answer : answers) {
                        command(socket.getInputStream());
                        socket.getOutputStream().write(answer.getBytes(StandardCharsets.ISO_8859_1));
                        socket.getOutputStream().flush();
                    }
                    while (socket.getInputStream().read() >= 0) {
                        // Until the client goes.
                    }
                } catch (IOException e) {
                    // The test has ended.
                }
            });
            thread.setDaemon(true);
            thread.start();
        }

        private void command(InputStream in) throws IOException {
            int count = Integer.parseInt(line(in).substring(1));
            StringBuilder text = new StringBuilder();
            for (int i = 0; i < count; i++) {
                byte[] word = new byte[Integer.parseInt(line(in).substring(1))];
                for (int done = 0; done < word.length; ) {
                    done += in.read(word, done, word.length - done);
                }
                line(in);
                text.append(i == 0 ? "" : " ").append(new String(word, StandardCharsets.ISO_8859_1));
            }
            synchronized (asked) {
                asked.append(text).append('\n');
            }
        }

        private static String line(InputStream in) throws IOException {
            StringBuilder text = new StringBuilder();
            for (int next = in.read(); next != '\n'; next = in.read()) {
                if (next < 0) {
                    throw new IOException("closed");
                }
                text.append((char) next);
            }
            return text.toString().trim();
        }

        RespPool pool() {
            return new RespPool("127.0.0.1:" + server.getLocalPort(), 5000);
        }

        String address() {
            return "127.0.0.1:" + server.getLocalPort();
        }

        @Override
        public void close() throws IOException {
            server.close();
        }
    }

    private static StewardClient.Grant open(RespPool pool) throws IOException {
        List<String> nodes = Arrays.asList("10.0.0.1:9866", "10.0.0.2:9866");
        return new StewardClient(pool, "ns").open(
                new FileParity.File("/a b", 16386, 0x1c2L, 100, false, 64, 4, nodes));
    }

    @Test
    public void openAsksAndUnderstands() throws IOException {
        String answer = "*6\r\n$6\r\ncached\r\n:7\r\n$16\r\n0123456789abcdef\r\n:1\r\n:1048576\r\n*1\r\n$13\r\n10.0.0.2:9866\r\n";
        try (Script script = new Script(answer)) {
            StewardClient.Grant grant = open(script.pool());
            assertEquals(StewardClient.Decision.CACHED, grant.decision);
            assertEquals(7, grant.pin);
            assertEquals("0123456789abcdef", grant.token);
            assertEquals(1 << 20, grant.subBytes);
            assertEquals(Collections.singleton("10.0.0.2:9866"), grant.slow);
            assertEquals("FILES.OPEN ns 16386 00000000000001c2 100 contiguous 4 64 /a b 10.0.0.1:9866 10.0.0.2:9866\n",
                    script.asked.toString());
        }
    }

    @Test
    public void answersThatAreWrongAreErrors() throws IOException {
        String[] wrong = {
            "-ERR of another cluster\r\n", "+OK\r\n", "*2\r\n:1\r\n:2\r\n", "*99999999\r\n", "$99999999999\r\n", "?\r\n", "\r\n",
            "*6\r\n$5\r\nmaybe\r\n:7\r\n$0\r\n\r\n:1\r\n:1\r\n*0\r\n",
            "*6\r\n$6\r\ncached\r\n:7\r\n$3\r\nabc\r\n:1\r\n:1048576\r\n*0\r\n",
            "*6\r\n$6\r\ncached\r\n:7\r\n$-1\r\n:1\r\n:1048576\r\n*0\r\n",
            "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        };
        for (String answer : wrong) {
            try (Script script = new Script(answer)) {
                assertThrows(answer, IOException.class, () -> open(script.pool()));
            }
        }
    }

    @Test
    public void theSpareNamesTheLeader() throws IOException {
        String answer = "*6\r\n$16\r\nshould-not-cache\r\n:0\r\n$0\r\n\r\n:1\r\n:1048576\r\n*0\r\n";
        try (Script leader = new Script(answer);
                Script spare = new Script("-NOTLEADER " + leader.address() + "\r\n")) {
            RespPool pool = new RespPool(spare.address() + "," + leader.address(), 5000);
            assertEquals(StewardClient.Decision.SHOULD_NOT_CACHE, open(pool).decision);
        }
    }

    @Test
    public void whoFailsIsNotAskedAgainAtOnce() throws IOException {
        AtomicInteger connections = new AtomicInteger();
        try (ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            Thread thread = new Thread(() -> {
                while (true) {
                    try {
                        server.accept().close();
                        connections.incrementAndGet();
                    } catch (IOException e) {
                        return;
                    }
                }
            });
            thread.setDaemon(true);
            thread.start();
            RespPool pool = new RespPool("127.0.0.1:" + server.getLocalPort(), 1000);
            for (int i = 0; i < 100; i++) {
                assertThrows(IOException.class, () -> open(pool));
            }
            assertTrue(connections + " connections for 100 commands", connections.get() < 10);
        }
    }

    @Test
    public void pinsThatAreUnknownAreNamed() throws IOException {
        try (Script script = new Script("*3\r\n:1\r\n:0\r\n:1\r\n")) {
            List<Long> unknown = new StewardClient(script.pool(), "ns").renew(Arrays.asList(4L, 5L, 6L));
            assertEquals(Collections.singletonList(5L), unknown);
            assertEquals("FILES.RENEW ns 4 5 6\n", script.asked.toString());
        }
    }

    @Test
    public void aWorkerIsGivenFilesOneByOne() throws IOException {
        String granted = "*6\r\n$12\r\nshould-cache\r\n:7\r\n$16\r\n0123456789abcdef\r\n:1\r\n:1048576\r\n*0\r\n";
        try (Script script = new Script("$5\r\n16386\r\n", granted, "$-1\r\n")) {
            StewardClient steward = new StewardClient(script.pool(), "ns");
            assertEquals(16386, steward.next());
            StewardClient.Grant grant = steward.make(
                    new FileParity.File("/a", 16386, 1, 100, false, 64, 4, Collections.singletonList("a:1")));
            assertEquals(StewardClient.Decision.SHOULD_CACHE, grant.decision);
            assertEquals(0, steward.next());
            assertEquals(
                    "FILES.PREFETCH ns\nFILES.MAKE ns 16386 0000000000000001 100 contiguous 4 64 /a a:1\nFILES.PREFETCH ns\n",
                    script.asked.toString());
        }
    }

    @Test
    public void creditIsWhatTheStewardGrantsAndNoMore() throws IOException {
        try (Script script = new Script(":9\r\n", ":0\r\n", ":99\r\n", ":-1\r\n")) {
            StewardClient steward = new StewardClient(script.pool(), "ns");
            assertEquals(9, steward.credit(9, "a:1"));
            assertEquals(0, steward.credit(9, "a:1"));
            assertEquals(9, steward.credit(9, "a:1"));
            assertEquals(0, steward.credit(9, "a:1"));
            assertTrue(script.asked.toString().startsWith("FILES.CREDIT ns 9 a:1\n"));
        }
    }

    @Test
    public void samplesAreReported() throws IOException {
        try (Script script = new Script("+OK\r\n")) {
            new StewardClient(script.pool(), "ns").report(Arrays.asList(
                    new StewardClient.Sample("a:1", 5, 6, false), new StewardClient.Sample("b:2", 7, 8, true)));
            assertEquals("FILES.REPORT ns a:1 5 6 0 b:2 7 8 1\n", script.asked.toString());
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }

    @Test
    public void parityGoesAndComes() throws IOException {
        byte[] none = {};
        byte[] payload = bytes("parity");
        String key = ParityValue.key("ns", 7, "00000000000000ff", 2, 3);
        byte[] header = ParityValue.header(none, key, payload, payload.length);
        String value = new String(header, StandardCharsets.ISO_8859_1) + "parity";
        try (Script script = new Script("+OK\r\n", "$" + value.length() + "\r\n" + value + "\r\n", "$-1\r\n", "$3\r\nabc\r\n")) {
            RespPool pool = script.pool();
            pool.use(0, connection -> {
                connection.set(key, header, payload, payload.length, 86_400);
                byte[] gotHeader = new byte[ParityValue.HEADER_BYTES];
                byte[] got = new byte[10];
                assertEquals(6, connection.get(key, gotHeader, got));
                assertArrayEquals(payload, Arrays.copyOf(got, 6));
                assertTrue(ParityValue.isOf(none, key, gotHeader, got, 6));
                got[3] ^= 1;
                assertFalse(ParityValue.isOf(none, key, gotHeader, got, 6));
                assertEquals(-1, connection.get(key, gotHeader, got));
                assertThrows(IOException.class, () -> connection.get(key, gotHeader, got));
                return null;
            });
            assertTrue(script.asked.toString().startsWith("SET fp:ns:7:00000000000000ff:2:0:3 " + value + " EX 86400\n"));
        }
    }

    @Test
    public void parityOfAnotherPlaceIsRefused() {
        String key = ParityValue.key("ns", 7, "00000000000000ff", 2, 3);
        byte[] payload = bytes("parity");
        for (byte[] secret : new byte[][] {{}, bytes("a secret of clients")}) {
            byte[] header = ParityValue.header(secret, key, payload, payload.length);
            assertTrue(ParityValue.isOf(secret, key, header, payload, payload.length));
            for (String other : new String[] {
                ParityValue.key("other", 7, "00000000000000ff", 2, 3), ParityValue.key("ns", 8, "00000000000000ff", 2, 3),
                ParityValue.key("ns", 7, "00000000000000fe", 2, 3), ParityValue.key("ns", 7, "00000000000000ff", 1, 3),
                ParityValue.key("ns", 7, "00000000000000ff", 2, 4), ParityValue.versionKey("ns", 7, "00000000000000ff"),
            }) {
                assertFalse(other, ParityValue.isOf(secret, other, header, payload, payload.length));
            }
        }
    }

    @Test
    public void whoDoesNotKnowTheSecretCannotMakeParity() {
        String key = ParityValue.key("ns", 7, "00000000000000ff", 2, 3);
        byte[] secret = bytes("a secret of clients");
        byte[] payload = bytes("parity");
        byte[] real = ParityValue.header(secret, key, payload, payload.length);
        payload[2] ^= 1;
        // The CRC made right, with another secret, with none, and with the MAC of the real bytes.
        byte[] right = ParityValue.header(bytes("a secret of others."), key, payload, payload.length);
        byte[] plain = ParityValue.header(new byte[0], key, payload, payload.length);
        byte[] patched = right.clone();
        System.arraycopy(real, 8, patched, 8, 16);
        for (byte[] header : new byte[][] {real, right, plain, patched}) {
            assertFalse(ParityValue.isOf(secret, key, header, payload, payload.length));
        }
        assertTrue("without a secret the CRC is all", ParityValue.isOf(new byte[0], key, right, payload, payload.length));
    }

    @Test
    public void valuesAreThoseOfThePage() throws IOException {
        String page = new String(Files.readAllBytes(Paths.get("../../docs/formats/files.md")), StandardCharsets.UTF_8);
        String place = ParityValue.key("lake", 16386, "0123456789abcdef", 0, 3);
        String version = ParityValue.versionKey("lake", 16386, "0123456789abcdef");
        for (String key : new String[] {place, version}) {
            byte[] payload = key.equals(place) ? bytes("parity") : ParityValue.version(0x40d69e0cf0f65c45L);
            for (String secret : new String[] {"", "0123456789abcdef"}) {
                StringBuilder hex = new StringBuilder();
                for (byte[] part : new byte[][] {ParityValue.header(bytes(secret), key, payload, payload.length), payload}) {
                    for (byte one : part) {
                        hex.append(String.format("%02x", one));
                    }
                }
                String row = "| `" + key + "` | " + (secret.isEmpty() ? "no" : "yes") + " | `" + hex + "` |";
                assertTrue(row, page.contains(row));
            }
        }
    }

    @Test
    public void checksums() {
        byte[] digits = "123456789".getBytes(StandardCharsets.US_ASCII);
        assertEquals(0xE3069283, Crc32c.of(new byte[0], digits, digits.length));
        assertEquals(0xE3069283, Crc32c.byTable(bytes("1234"), bytes("56789"), 5));
        byte[] zeros = new byte[32];
        assertEquals(0x8A9136AA, Crc32c.of(zeros, zeros, 0));
        assertEquals("40d69e0cf0f65c45", FileVersion.text(FileVersion.of(0, 0, 0, 0, 0)));
    }
}
