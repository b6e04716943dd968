package io.paritas.hadoop;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Paths;
import java.util.logging.Logger;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.security.ProviderUtils;

/** Passwords from Hadoop's credential providers, or from files. What cannot be read is logged, and counts as none. */
final class Passwords {
    private static final int BYTES_MAX = 512;

    private Passwords() {}

    /** The password under `name`, else the one in the file that `name`.file names; empty if there is neither. */
    static String of(Configuration conf, String name) {
        String found = find(conf, name);
        return found == null ? "" : found;
    }

    /** As `of`; null if one of the two is set and cannot be read. */
    static String find(Configuration conf, String name) {
        boolean isUnread = false;
        try {
            // A provider whose store is in this HDFS would ask for its own password.
            Configuration others = ProviderUtils.excludeIncompatibleCredentialProviders(conf, DistributedFileSystem.class);
            char[] password = others.getPassword(name);
            if (password != null && password.length > 0) {
                return new String(password);
            }
        } catch (IOException e) {
            warn(name + " cannot be read from hadoop.security.credential.provider.path: " + e.getMessage());
            isUnread = true;
        }
        String file = conf.getTrimmed(name + ".file", "");
        if (file.isEmpty()) {
            return isUnread ? null : "";
        }
        try {
            return fromFile(file);
        } catch (IOException | InvalidPathException e) {
            warn(name + ".file: " + file + " cannot be read: " + e + ". Files are read without parity");
            return null;
        }
    }

    /** The logger is made here only: it costs a JVM that does not need it milliseconds. */
    private static void warn(String text) {
        Logger.getLogger(Passwords.class.getName()).warning(text);
    }

    /** The file's first and only line. */
    private static String fromFile(String file) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (InputStream in = Files.newInputStream(Paths.get(file))) {
            for (int next = in.read(); next >= 0; next = in.read()) {
                if (bytes.size() > BYTES_MAX + 1) {
                    throw new IOException("a password has at most " + BYTES_MAX + " bytes");
                }
                bytes.write(next);
            }
        }
        String text = new String(bytes.toByteArray(), StandardCharsets.UTF_8).replaceFirst("\r?\n$", "");
        if (text.isEmpty() || text.indexOf('\n') >= 0) {
            throw new IOException("it must have one line, with the password");
        }
        return text;
    }
}
