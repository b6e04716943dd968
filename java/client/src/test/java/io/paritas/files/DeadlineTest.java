package io.paritas.files;

import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.Test;

/** A cache that neither answers nor goes away is not waited for. */
public class DeadlineTest {
    private static final int TIMEOUT_MS = 300;
    /** More than the kernel takes for a peer that never reads. */
    private static final int LONG_BYTES = 64 << 20;

    /** A cache that takes one connection. */
    private interface Behaviour {
        void serve(Socket socket) throws Exception;
    }

    private static ServerSocket server(Behaviour behaviour) throws IOException {
        ServerSocket server = new ServerSocket(0, 5, InetAddress.getLoopbackAddress());
        Thread thread = new Thread(() -> {
            try (Socket socket = server.accept()) {
                behaviour.serve(socket);
            } catch (Exception e) {
                // The client or the test has ended.
            }
        });
        thread.setDaemon(true);
        thread.start();
        return server;
    }

    private static RespPool pool(ServerSocket server) {
        return new RespPool("127.0.0.1:" + server.getLocalPort(), TIMEOUT_MS);
    }

    @Test(timeout = 60_000)
    public void aValueThatNobodyTakesIsNotWaitedFor() throws Exception {
        CountDownLatch end = new CountDownLatch(1);
        try (ServerSocket server = server(socket -> end.await())) {
            RespPool pool = pool(server);
            assertThrows(IOException.class, () -> pool.use(0, connection -> {
                connection.set("key", new byte[1], new byte[LONG_BYTES], LONG_BYTES, 60);
                return null;
            }));
        } finally {
            end.countDown();
        }
    }

    @Test(timeout = 60_000)
    public void aValueThatComesByteByByteIsNotWaitedFor() throws Exception {
        CountDownLatch end = new CountDownLatch(1);
        try (ServerSocket server = server(socket -> {
            OutputStream out = socket.getOutputStream();
            out.write(("$" + LONG_BYTES + "\r\n").getBytes(StandardCharsets.US_ASCII));
            do {
                out.write('x');
            } while (!end.await(TIMEOUT_MS / 10, TimeUnit.MILLISECONDS));
        })) {
            RespPool pool = pool(server);
            long startNs = System.nanoTime();
            byte[] into = new byte[LONG_BYTES];
            assertThrows(IOException.class, () -> pool.use(0, 1 << 20, connection -> connection.get("key", new byte[1], into)));
            long ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - startNs);
            assertTrue("as long again for each MiB: " + ms, ms >= 2 * TIMEOUT_MS);
        } finally {
            end.countDown();
        }
    }
}
