package io.paritas.files;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;

/** A server that answers each command as a function says, on any number of connections, and remembers what was asked. */
public final class FakeServer implements AutoCloseable {
    private final ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final List<String> asked = new ArrayList<>();
    private final List<Socket> open = new ArrayList<>();

    /** The function gets the words, one character for each byte. It returns the reply's bytes; null: there is none, ever. */
    public FakeServer(Function<String[], String> answers) throws IOException {
        start(() -> {
            while (true) {
                Socket socket = server.accept();
                synchronized (asked) {
                    open.add(socket);
                }
                start(() -> serve(socket, answers));
            }
        });
    }

    private interface Work {
        void run() throws IOException;
    }

    private static void start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException e) {
                // The test has ended, or the client has gone.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private void serve(Socket socket, Function<String[], String> answers) throws IOException {
        InputStream in = new BufferedInputStream(socket.getInputStream());
        while (true) {
            String[] words = new String[Integer.parseInt(line(in).substring(1))];
            for (int i = 0; i < words.length; i++) {
                byte[] word = new byte[Integer.parseInt(line(in).substring(1))];
                for (int done = 0; done < word.length; ) {
                    done += in.read(word, done, word.length - done);
                }
                line(in);
                words[i] = new String(word, StandardCharsets.ISO_8859_1);
            }
            String answer = answers.apply(words);
            synchronized (asked) {
                asked.add(String.join(" ", words));
                asked.notifyAll();
            }
            if (answer != null) {
                socket.getOutputStream().write(answer.getBytes(StandardCharsets.ISO_8859_1));
                socket.getOutputStream().flush();
            }
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

    public String address() {
        return "127.0.0.1:" + server.getLocalPort();
    }

    /** What was asked with this first word. */
    public List<String> asked(String word) {
        synchronized (asked) {
            List<String> found = new ArrayList<>(asked);
            found.removeIf(text -> !text.startsWith(word + " "));
            return found;
        }
    }

    @Override
    public void close() throws IOException {
        server.close();
        synchronized (asked) {
            for (Socket socket : open) {
                socket.close();
            }
        }
    }
}
