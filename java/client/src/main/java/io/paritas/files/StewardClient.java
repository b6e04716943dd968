package io.paritas.files;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** The steward's commands, `FILES.*`. Every call may fail, and none is needed to read a file. */
public final class StewardClient {
    /** What the steward decided about a file's parity. */
    public enum Decision {
        CACHED,
        SHOULD_CACHE,
        SHOULD_NOT_CACHE
    }

    /** The answer to an open. `pin` is 0 and `token` empty if nothing may be read or written. */
    public static final class Grant {
        public final Decision decision;
        public final long pin;
        public final String token;
        public final int subBytes;
        /** The nodes that are slow now. */
        public final Set<String> slow;

        public Grant(Decision decision, long pin, String token, int subBytes, Set<String> slow) {
            this.decision = decision;
            this.pin = pin;
            this.token = token;
            this.subBytes = subBytes;
            this.slow = slow;
        }
    }

    /** How fast a node gave bytes. */
    public static final class Sample {
        final String node;
        final long bytes;
        final long ns;
        final boolean cancelled;

        public Sample(String node, long bytes, long ns, boolean cancelled) {
            this.node = node;
            this.bytes = bytes;
            this.ns = ns;
            this.cancelled = cancelled;
        }
    }

    /** Samples of one report, as the steward limits them. */
    public static final int SAMPLES_MAX = 256;

    private static final int TOKEN_LENGTH = 16;

    private final RespPool pool;
    private final String namespace;

    public StewardClient(RespPool pool, String namespace) {
        this.pool = pool;
        this.namespace = namespace;
    }

    public boolean isConfigured() {
        return !pool.isEmpty();
    }

    public Grant open(FileParity.File file) throws IOException {
        return open("FILES.OPEN", file);
    }

    /** As `open` by a worker, who makes the parity of a file that `next` has named. */
    public Grant make(FileParity.File file) throws IOException {
        return open("FILES.MAKE", file);
    }

    /** Asks for so many bytes beyond what readers ask for, because this node is slow. Returns how many are granted: all or 0. */
    public long credit(long bytes, String node) throws IOException {
        List<String> call = begin("FILES.CREDIT");
        call.add(Long.toString(bytes));
        call.add(node);
        return Math.max(0, Math.min(bytes, number(send(call))));
    }

    /** The id of the next file whose parity should be made ahead of its readers; 0: there is none now. */
    public long next() throws IOException {
        Object reply = send(begin("FILES.PREFETCH"));
        return reply == null ? 0 : number(reply);
    }

    /** The id of a file with parity that nobody has seen for long: it may be gone. 0: there is none. */
    public long check() throws IOException {
        Object reply = send(begin("FILES.CHECK"));
        return reply == null ? 0 : number(reply);
    }

    /** The file is gone. */
    public void deleted(long id) throws IOException {
        List<String> call = begin("FILES.TELL");
        call.add("deleted");
        call.add(Long.toString(id));
        send(call);
    }

    private Grant open(String command, FileParity.File file) throws IOException {
        List<String> call = begin(command);
        call.add(Long.toString(file.id));
        call.add(FileVersion.text(file.version));
        call.add(Long.toString(file.length));
        call.add(layout(file.isStriped));
        call.add(Integer.toString(file.k));
        call.add(Long.toString(file.blockBytes));
        call.add(file.path);
        call.addAll(file.nodes);
        Object reply = send(call);
        if (!(reply instanceof Object[]) || ((Object[]) reply).length < 6) {
            throw new IOException("the steward's answer to " + command + " is not an array of six");
        }
        Object[] items = (Object[]) reply;
        Decision decision = decision(text(items[0]));
        String token = text(items[2]);
        if (decision != Decision.SHOULD_NOT_CACHE && !isToken(token)) {
            throw new IOException("the steward granted '" + token + "', which is not a token of 16 hex digits");
        }
        Set<String> slow = new HashSet<>();
        if (items[5] instanceof Object[]) {
            for (Object node : (Object[]) items[5]) {
                slow.add(text(node));
            }
        }
        long subBytes = number(items[4]);
        if (number(items[3]) < 1 || subBytes < 0 || subBytes > Integer.MAX_VALUE) {
            decision = Decision.SHOULD_NOT_CACHE;
        }
        return new Grant(decision, number(items[1]), token, (int) subBytes, slow);
    }

    /** Asks for room for the parity of a file under construction. `pin` is 0 if there is none. */
    public Grant room(long id, long parityBlocks, int k, boolean isStriped, long blockBytes) throws IOException {
        List<String> call = begin("FILES.ROOM");
        call.add(Long.toString(id));
        call.add(Long.toString(parityBlocks));
        call.add(Integer.toString(k));
        call.add(layout(isStriped));
        call.add(Long.toString(blockBytes));
        Object reply = send(call);
        if (!(reply instanceof Object[]) || ((Object[]) reply).length < 5) {
            throw new IOException("the steward's answer to FILES.ROOM is not an array of five");
        }
        Object[] items = (Object[]) reply;
        long subBytes = number(items[4]);
        if (number(items[0]) < parityBlocks || number(items[3]) < 1 || subBytes < 1 || subBytes > Integer.MAX_VALUE) {
            return new Grant(Decision.SHOULD_NOT_CACHE, number(items[1]), "", 0, Collections.emptySet());
        }
        String token = text(items[2]);
        if (!isToken(token)) {
            throw new IOException("the steward granted '" + token + "', which is not a token of 16 hex digits");
        }
        return new Grant(Decision.SHOULD_CACHE, number(items[1]), token, (int) subBytes, Collections.emptySet());
    }

    /** After `room`: the file is closed, and this is its version and its length. */
    public void commit(long pin, long subblocks, long version, long length) throws IOException {
        done(pin, "COMMIT", Long.toString(subblocks), FileVersion.text(version), Long.toString(length));
    }

    public void commit(long pin, long subblocks) throws IOException {
        done(pin, "COMMIT", Long.toString(subblocks));
    }

    public void drop(long pin) throws IOException {
        done(pin, "DROP");
    }

    public void close(long pin) throws IOException {
        done(pin, "CLOSE");
    }

    /** Returns the pins that the steward does not know: their parity must not be used or written any more. */
    public List<Long> renew(Collection<Long> pins) throws IOException {
        List<Long> asked = new ArrayList<>(pins);
        List<String> call = begin("FILES.RENEW");
        asked.forEach(pin -> call.add(Long.toString(pin)));
        Object reply = send(call);
        if (!(reply instanceof Object[]) || ((Object[]) reply).length != asked.size()) {
            throw new IOException("the steward's answer to FILES.RENEW does not have one entry for each pin");
        }
        List<Long> unknown = new ArrayList<>();
        for (int i = 0; i < asked.size(); i++) {
            if (number(((Object[]) reply)[i]) == 0) {
                unknown.add(asked.get(i));
            }
        }
        return unknown;
    }

    public void report(List<Sample> samples) throws IOException {
        List<String> call = begin("FILES.REPORT");
        for (Sample sample : samples) {
            call.add(sample.node);
            call.add(Long.toString(sample.bytes));
            call.add(Long.toString(sample.ns));
            call.add(sample.cancelled ? "1" : "0");
        }
        send(call);
    }

    private void done(long pin, String... how) throws IOException {
        List<String> call = begin("FILES.DONE");
        call.add(Long.toString(pin));
        for (String word : how) {
            call.add(word);
        }
        send(call);
    }

    private static String layout(boolean isStriped) {
        return isStriped ? "striped" : "contiguous";
    }

    private List<String> begin(String command) {
        List<String> call = new ArrayList<>();
        call.add(command);
        call.add(namespace);
        return call;
    }

    private Object send(List<String> call) throws IOException {
        String[] arguments = call.toArray(new String[0]);
        return pool.use(0, connection -> connection.call(arguments));
    }

    private static Decision decision(String text) throws IOException {
        switch (text) {
            case "cached":
                return Decision.CACHED;
            case "should-cache":
                return Decision.SHOULD_CACHE;
            case "should-not-cache":
                return Decision.SHOULD_NOT_CACHE;
            default:
                throw new IOException("the steward decided '" + text + "', which this client does not know");
        }
    }

    private static boolean isToken(String token) {
        return token.length() == TOKEN_LENGTH && token.matches("[0-9a-f]*");
    }

    private static String text(Object item) throws IOException {
        if (item instanceof byte[]) {
            return new String((byte[]) item, StandardCharsets.UTF_8);
        }
        if (item instanceof String) {
            return (String) item;
        }
        throw new IOException("the steward's answer has something else where a text belongs");
    }

    private static long number(Object item) throws IOException {
        if (item instanceof Long) {
            return (Long) item;
        }
        try {
            return Long.parseLong(text(item));
        } catch (NumberFormatException e) {
            throw new IOException("the steward's answer has '" + text(item) + "' where a number belongs", e);
        }
    }
}
