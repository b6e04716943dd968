package io.paritas.files;

import java.io.IOException;
import java.net.UnknownHostException;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.logging.Logger;

/**
 * Why the stewards, or the cache, are of no use to this JVM. Each cause is logged once in the JVM's life, with the setting to
 * change: reads and writes go on without parity, so nothing else would tell.
 */
final class Troubles {
    private static final Set<String> LOGGED = ConcurrentHashMap.newKeySet();
    /** The other side chooses words of some causes. */
    private static final int CAUSES_MAX = 256;
    private static final String WITHOUT = ". Files are read and written without parity";

    private final String server;
    private final String setting;

    private Troubles(String server, String setting) {
        this.server = server;
        this.setting = setting;
    }

    static Troubles ofSteward() {
        return new Troubles("steward", "fs.paritas.steward");
    }

    static Troubles ofCache() {
        return new Troubles("parity cache", "fs.paritas.cache");
    }

    /** What is missing, if only one of both addresses is set. With neither, parity is not wanted. */
    static void onSettings(FilesClient.Settings settings) {
        if (settings.steward.isEmpty() != settings.cache.isEmpty()) {
            String missing = settings.steward.isEmpty() ? "fs.paritas.steward" : "fs.paritas.cache";
            once(missing, missing + " is not set, and so there is no parity: set it to host:port" + WITHOUT);
        }
    }

    /** Stewards and clients code different bytes together. */
    static void onSubblock(int ours, int theirs) {
        once("subblock", "the steward's subblock has " + theirs + " bytes, this client's " + ours
                + ": set fs.paritas.subblock" + WITHOUT);
    }

    /** Files are read by Hadoop's stream for want of memory. */
    static void onMemory(long needed, long most) {
        String why = needed > most
                ? "a read takes " + mib(needed) + " MiB, and " + mib(most) + " MiB are allowed: raise"
                        + " fs.paritas.read.memory, and the heap (-Xmx) to twice as much"
                : "the " + mib(most) + " MiB that are allowed are in use: raise fs.paritas.read.memory and the heap (-Xmx),"
                        + " or read fewer files at once";
        once("memory " + (needed > most), why + ". Until then such reads are Hadoop's own"
                + " (declined_for_memory counts them), or make no parity");
    }

    private static long mib(long bytes) {
        return (bytes + (1 << 20) - 1) >> 20;
    }

    String setting() {
        return setting;
    }

    /** None of the addresses can be used; the last one for this reason. */
    void onUnusable(String address, boolean isLate, int timeoutMs, IOException why) {
        if (isLate) {
            once(address + " late", "the " + server + " at " + address + " has not answered in time: see " + setting
                    + ", or raise fs.paritas.timeout.ms, which is " + timeoutMs + WITHOUT + " until it answers");
            return;
        }
        String text = why instanceof UnknownHostException ? "no such host" : String.valueOf(why.getMessage());
        once(address, "the " + server + " at " + address + " cannot be used (" + text + "): see " + setting + WITHOUT
                + " until it can");
    }

    /** The other side answers, but not with what it was asked for. */
    void onRefusal(String address, String namespace, RespConnection.ErrorReply refusal) {
        String text = refusal.getMessage();
        String who = "the " + server + " at " + address;
        if (text.contains("unknown command")) {
            once(address + " other", who + " is no " + server + " (" + text + "): see " + setting + WITHOUT);
        } else if (text.contains("there is no mount ")) {
            once(address + " mount " + namespace, who + " has no mount '" + namespace
                    + "': see fs.paritas.namespace, or add the mount to the steward's file" + WITHOUT);
        } else if (text.startsWith("OOM")) {
            once(address + " full", who + " is full (" + text + "): give it more memory, or lower `blocks` of the mount in the"
                    + " steward's file; or see " + setting + ". Files that find no room have no parity");
        } else if (server.equals("parity cache")) {
            // TRYAGAIN must not hide what comes after it.
            once(address + " refuses " + text.split(" ", 2)[0], who + " refuses a command (" + text + "): see " + setting
                    + ". Files are read and written without parity while it does");
        }
        // Other errors of a steward are about one file.
    }

    private static void once(String cause, String text) {
        if (LOGGED.size() < CAUSES_MAX && LOGGED.add(cause)) {
            Logger.getLogger(Troubles.class.getName()).warning(text);
        }
    }
}
