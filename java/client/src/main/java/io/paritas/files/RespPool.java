package io.paritas.files;

import java.io.IOException;
import java.net.SocketTimeoutException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.logging.Logger;

/**
 * Connections to some addresses of which any will do. An address that failed is left alone for a while. What is wrong
 * with its password is logged once, until a password is accepted.
 */
public final class RespPool {
    /** What is done with a connection. */
    public interface Use<T> {
        T with(RespConnection connection) throws IOException;
    }

    private static final long PAUSE_NS = 2_000_000_000L;
    private static final int IDLE_MAX = 16;
    private static final long MIB = 1 << 20;

    private final List<Address> addresses = new ArrayList<>();
    private final int timeoutMs;
    private final Password password;
    /** Null: nothing is logged but passwords. */
    private final Troubles troubles;
    private final String namespace;
    private int first;

    private static final class Address {
        final String host;
        final int port;
        final Deque<RespConnection> idle = new ArrayDeque<>();
        long pausedUntilNs;
        boolean paused;
        boolean hasWarned;

        Address(String host, int port) {
            this.host = host;
            this.port = port;
        }

        @Override
        public String toString() {
            return host + ':' + port;
        }

        boolean is(String otherHost, int otherPort) {
            return host.equals(otherHost) && port == otherPort;
        }
    }

    /** `addresses` is `host:port`, several separated by commas. */
    public RespPool(String addresses, int timeoutMs) {
        this(addresses, timeoutMs, Password.none());
    }

    public RespPool(String addresses, int timeoutMs, Password password) {
        this(addresses, timeoutMs, password, null, "");
    }

    RespPool(String addresses, int timeoutMs, Password password, Troubles troubles, String namespace) {
        this.timeoutMs = timeoutMs;
        this.password = password;
        this.troubles = troubles;
        this.namespace = namespace;
        for (String text : addresses.split(",")) {
            if (!text.trim().isEmpty()) {
                this.addresses.add(configured(text.trim()));
            }
        }
    }

    private Address configured(String text) {
        try {
            return parse(text);
        } catch (IllegalArgumentException e) {
            throw troubles == null ? e : new IllegalArgumentException(troubles.setting() + ": " + e.getMessage(), e);
        }
    }

    public boolean isEmpty() {
        return addresses.isEmpty();
    }

    /** As the other, for a command and a reply that are short. */
    public <T> T use(int spread, Use<T> use) throws IOException {
        return use(spread, 0, use);
    }

    /**
     * Uses a connection to the address that `spread` chooses, or to the next that is not known to be away. The use ends after the
     * timeout, and as much again for each MiB of `bytes`, whatever the other side does.
     */
    public <T> T use(int spread, long bytes, Use<T> use) throws IOException {
        long deadlineMs = timeoutMs + timeoutMs * bytes / MIB;
        IOException last = new IOException("no address is configured, or none answered within the last two seconds");
        Runnable warning = null;
        int count = addresses.size();
        int start = preferred() + spread;
        for (int i = 0; i < count; i++) {
            Address address = addresses.get(Math.floorMod(start + i, count));
            if (!isOpen(address)) {
                continue;
            }
            RespConnection connection = null;
            boolean kept = false;
            long dueNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(deadlineMs);
            try (Deadline deadline = new Deadline(deadlineMs)) {
                connection = take(address);
                boolean reused = connection != null;
                if (!reused) {
                    connection = connect(address, deadline);
                }
                deadline.watch(connection);
                T result;
                try {
                    result = use.with(connection);
                } catch (RespConnection.ErrorReply e) {
                    IOException refused = password.explain(e, address.toString());
                    if (refused != null) {
                        throw refused;
                    }
                    kept = true;
                    throw e;
                } catch (IOException e) {
                    if (!reused || deadline.hasPassed() || e instanceof SocketTimeoutException) {
                        throw e;
                    }
                    // The server may have been restarted since. Commands may be repeated, also those that it has done already: of
                    // FILES.OPEN a pin is left, which ends after 30 s, of FILES.PREFETCH a file that nobody is told again.
                    connection.close();
                    forget(address);
                    connection = connect(address, deadline);
                    result = use.with(connection);
                }
                kept = true;
                return result;
            } catch (RespConnection.ErrorReply e) {
                if (connection != null) {
                    give(address, connection);
                }
                connection = null;
                if (!follows(e.getMessage())) {
                    if (troubles != null) {
                        troubles.onRefusal(address.toString(), namespace, e);
                    }
                    throw e;
                }
                last = e;
            } catch (IOException e) {
                last = e;
                if (e instanceof Password.Refused) {
                    warn(address, e.getMessage() + ". Until then files are read and written without parity");
                } else if (troubles != null) {
                    boolean isLate = System.nanoTime() - dueNs >= 0 || e instanceof SocketTimeoutException;
                    warning = () -> troubles.onUnusable(address.toString(), isLate, timeoutMs, e);
                }
                pause(address);
            } finally {
                if (connection != null) {
                    if (kept) {
                        give(address, connection);
                    } else {
                        connection.close();
                    }
                }
            }
        }
        if (warning != null) {
            // Another address would have done.
            warning.run();
        }
        throw last;
    }

    private RespConnection connect(Address address, Deadline deadline) throws IOException {
        RespConnection connection = new RespConnection(address.host, address.port, timeoutMs);
        boolean isAccepted = false;
        try {
            deadline.watch(connection);
            if (password.tell(connection, address.toString())) {
                accepted(address);
            } else {
                warn(address, password.unneeded(address.toString()));
            }
            isAccepted = true;
            return connection;
        } finally {
            if (!isAccepted) {
                connection.close();
            }
        }
    }

    private synchronized void warn(Address address, String text) {
        if (!address.hasWarned) {
            Logger.getLogger(RespPool.class.getName()).warning(text);
        }
        address.hasWarned = true;
    }

    private synchronized void accepted(Address address) {
        address.hasWarned = false;
    }

    /** Closes what is idle. */
    public synchronized void close() {
        addresses.forEach(this::forget);
    }

    /** The spare steward names the leader: it is asked first from now on, if it is one of ours. */
    private synchronized boolean follows(String message) {
        if (!message.startsWith("NOTLEADER ")) {
            return false;
        }
        try {
            Address leader = parse(message.substring("NOTLEADER ".length()).trim());
            for (int i = 0; i < addresses.size(); i++) {
                if (addresses.get(i).is(leader.host, leader.port)) {
                    first = i;
                }
            }
        } catch (IllegalArgumentException e) {
            return true;
        }
        return true;
    }

    private synchronized int preferred() {
        return first;
    }

    private static Address parse(String text) {
        int colon = text.lastIndexOf(':');
        try {
            int port = Integer.parseInt(text.substring(colon + 1));
            if (colon > 0 && port > 0 && port < 65536) {
                return new Address(text.substring(0, colon), port);
            }
        } catch (NumberFormatException e) {
            // Named below.
        }
        throw new IllegalArgumentException("'" + text + "' is not host:port");
    }

    private synchronized boolean isOpen(Address address) {
        if (address.paused && System.nanoTime() - address.pausedUntilNs >= 0) {
            address.paused = false;
        }
        return !address.paused;
    }

    private synchronized void pause(Address address) {
        address.paused = true;
        address.pausedUntilNs = System.nanoTime() + PAUSE_NS;
        forget(address);
    }

    private synchronized RespConnection take(Address address) {
        return address.idle.pollFirst();
    }

    private synchronized void give(Address address, RespConnection connection) {
        if (address.idle.size() < IDLE_MAX) {
            address.idle.addFirst(connection);
        } else {
            connection.close();
        }
    }

    private synchronized void forget(Address address) {
        address.idle.forEach(RespConnection::close);
        address.idle.clear();
    }
}
