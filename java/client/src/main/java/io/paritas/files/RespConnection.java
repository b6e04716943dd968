package io.paritas.files;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

/** One connection that speaks RESP2. After an exception other than {@link ErrorReply} it must be closed. */
public final class RespConnection implements Closeable {
    /** The other side refused a command. The connection can be used further. */
    public static final class ErrorReply extends IOException {
        ErrorReply(String message) {
            super(message);
        }
    }

    /** Limits on what the other side may make us hold. A parity subblock is read into the caller's memory. */
    private static final int LINE_BYTES_MAX = 4096;
    private static final int BULK_BYTES_MAX = 1 << 20;
    private static final int ARRAY_LENGTH_MAX = 4096;
    private static final int DEPTH_MAX = 4;
    private static final int BUFFER_BYTES = 64 << 10;

    private final Socket socket;
    private final InputStream in;
    private final OutputStream out;

    public RespConnection(String host, int port, int timeoutMs) throws IOException {
        socket = new Socket();
        try {
            socket.setTcpNoDelay(true);
            socket.setSoTimeout(timeoutMs);
            socket.connect(new InetSocketAddress(host, port), timeoutMs);
            in = new BufferedInputStream(socket.getInputStream(), BUFFER_BYTES);
            out = new BufferedOutputStream(socket.getOutputStream(), BUFFER_BYTES);
        } catch (IOException e) {
            socket.close();
            throw e;
        }
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException e) {
            // Nothing is lost: what was not answered counts as not done.
        }
    }

    /** A command and its reply: String, Long, byte[], Object[] or null. */
    public Object call(String... arguments) throws IOException {
        begin(arguments.length);
        for (String argument : arguments) {
            argument(argument.getBytes(StandardCharsets.UTF_8));
        }
        out.flush();
        return reply(0);
    }

    /** SET of a value in two pieces, which ends by itself after `seconds`. */
    public void set(String key, byte[] header, byte[] payload, int length, int seconds) throws IOException {
        begin(5);
        argument("SET".getBytes(StandardCharsets.UTF_8));
        argument(key.getBytes(StandardCharsets.UTF_8));
        line("$" + (header.length + length));
        out.write(header);
        out.write(payload, 0, length);
        line("");
        argument("EX".getBytes(StandardCharsets.UTF_8));
        argument(Integer.toString(seconds).getBytes(StandardCharsets.UTF_8));
        out.flush();
        reply(0);
    }

    /** GET of a value in two pieces. Returns the payload's length; -1 if there is no value, or one of an impossible length. */
    public int get(String key, byte[] header, byte[] payload) throws IOException {
        begin(2);
        argument("GET".getBytes(StandardCharsets.UTF_8));
        argument(key.getBytes(StandardCharsets.UTF_8));
        out.flush();
        String line = line();
        if (line.startsWith("-")) {
            throw new ErrorReply(line.substring(1));
        }
        if (!line.startsWith("$")) {
            throw new IOException("the parity cache answered GET with '" + line + "', not with a bulk string");
        }
        int length = number(line, Integer.MAX_VALUE) - header.length;
        if (number(line, Integer.MAX_VALUE) < 0) {
            return -1;
        }
        if (length < 0 || length > payload.length) {
            throw new IOException("the parity under " + key + " has " + length + " bytes; at most " + payload.length
                    + " are possible");
        }
        fill(header, header.length);
        fill(payload, length);
        endOfBulk();
        return length;
    }

    private void begin(int count) throws IOException {
        line("*" + count);
    }

    private void argument(byte[] bytes) throws IOException {
        line("$" + bytes.length);
        out.write(bytes);
        line("");
    }

    private void line(String text) throws IOException {
        out.write(text.getBytes(StandardCharsets.US_ASCII));
        out.write('\r');
        out.write('\n');
    }

    private Object reply(int depth) throws IOException {
        String line = line();
        if (line.isEmpty()) {
            throw new IOException("an empty line instead of a reply");
        }
        switch (line.charAt(0)) {
            case '+':
                return line.substring(1);
            case '-':
                throw new ErrorReply(line.substring(1));
            case ':':
                return parse(line);
            case '$':
                int length = number(line, BULK_BYTES_MAX);
                if (length < 0) {
                    return null;
                }
                byte[] bytes = new byte[length];
                fill(bytes, length);
                endOfBulk();
                return bytes;
            case '*':
                int count = number(line, ARRAY_LENGTH_MAX);
                if (count < 0) {
                    return null;
                }
                if (depth == DEPTH_MAX) {
                    throw new IOException("a reply with arrays nested deeper than " + DEPTH_MAX);
                }
                Object[] items = new Object[count];
                ErrorReply inner = null;
                for (int i = 0; i < count; i++) {
                    try {
                        items[i] = reply(depth + 1);
                    } catch (ErrorReply e) {
                        inner = e;
                    }
                }
                if (inner != null) {
                    throw inner;
                }
                return items;
            default:
                throw new IOException("a reply of an unknown type: '" + line + "'");
        }
    }

    private static long parse(String line) throws IOException {
        try {
            return Long.parseLong(line.substring(1));
        } catch (NumberFormatException e) {
            throw new IOException("'" + line + "' is not a number", e);
        }
    }

    private static int number(String line, int most) throws IOException {
        long number = parse(line);
        if (number < -1 || number > most) {
            throw new IOException("a length of " + number + "; at most " + most + " is possible");
        }
        return (int) number;
    }

    private String line() throws IOException {
        StringBuilder text = new StringBuilder();
        while (true) {
            int next = in.read();
            if (next < 0) {
                throw new EOFException("the other side closed the connection");
            }
            if (next == '\r') {
                if (in.read() != '\n') {
                    throw new IOException("a line that ends with CR alone");
                }
                return text.toString();
            }
            if (text.length() == LINE_BYTES_MAX) {
                throw new IOException("a line longer than " + LINE_BYTES_MAX + " bytes");
            }
            text.append((char) next);
        }
    }

    private void fill(byte[] into, int length) throws IOException {
        int done = 0;
        while (done < length) {
            int count = in.read(into, done, length - done);
            if (count < 0) {
                throw new EOFException("the other side closed the connection in a value");
            }
            done += count;
        }
    }

    private void endOfBulk() throws IOException {
        if (in.read() != '\r' || in.read() != '\n') {
            throw new IOException("a bulk string that does not end with CR LF");
        }
    }
}
