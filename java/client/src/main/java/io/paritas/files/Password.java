package io.paritas.files;

import java.io.IOException;

/** The password of the stewards, or of the cache, and the words for what is wrong with it. */
public final class Password {
    private final String server;
    private final String setting;
    private final String text;

    /** `server` is whose it is, `setting` where the user sets it. An empty `text`: there is none. */
    public Password(String server, String setting, String text) {
        this.server = server;
        this.setting = setting;
        this.text = text;
    }

    /** None, for servers that need none. */
    public static Password none() {
        return new Password("server", "a password", "");
    }

    /** Tells the other side the password. Returns false if it has none itself, and so takes everybody. */
    boolean tell(RespConnection connection, String address) throws IOException {
        if (text.isEmpty()) {
            return true;
        }
        try {
            connection.call("AUTH", text);
            return true;
        } catch (RespConnection.ErrorReply e) {
            if (e.getMessage().startsWith("WRONGPASS")) {
                throw new Refused("the " + server + " at " + address + " refuses the password: mend " + setting);
            }
            if (e.getMessage().contains("without any password configured")) {
                return false;
            }
            throw e;
        }
    }

    /** The error in words, if it is about a password; else null. */
    IOException explain(RespConnection.ErrorReply error, String address) {
        // Who is not in gets no answer to a long command: a Redis server and a steward refuse its length.
        if (!error.getMessage().startsWith("NOAUTH") && !error.getMessage().contains("unauthenticated")) {
            return null;
        }
        return new Refused("the " + server + " at " + address + " needs a password: set " + setting);
    }

    String unneeded(String address) {
        return "the " + server + " at " + address + " has no password and takes everybody: give it one, or remove " + setting;
    }

    /** The other side wants another password. The message names the setting. */
    public static final class Refused extends IOException {
        private static final long serialVersionUID = 1;

        Refused(String message) {
            super(message);
        }
    }
}
