package io.paritas.hadoop;

import static org.junit.Assert.assertEquals;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.junit.Test;

/** The page and the code know the same settings. */
public final class SettingsPageTest {
    private static final String PREFIX = "fs.paritas.";

    /** Remembers what it was asked for. */
    private static final class Asked extends Configuration {
        /** Null while the superclass is made. */
        private final TreeSet<String> names = new TreeSet<>();

        Asked() {
            super(false);
        }

        private void add(String name) {
            if (names != null && name.startsWith(PREFIX)) {
                names.add(name.substring(PREFIX.length()));
            }
        }

        @Override
        public String get(String name) {
            add(name);
            return super.get(name);
        }

        @Override
        public String get(String name, String defaultValue) {
            add(name);
            return super.get(name, defaultValue);
        }
    }

    @Test
    public void thePageHasEverySettingAndNoOther() throws IOException {
        String page = new String(Files.readAllBytes(Paths.get("../../docs/files-hadoop.md")), StandardCharsets.UTF_8);
        TreeSet<String> documented = new TreeSet<>();
        String table = page.substring(page.indexOf("| setting, `fs.paritas.` |"));
        Pattern word = Pattern.compile("`([^`]*)`");
        for (String row : table.substring(0, table.indexOf("\n\n")).split("\n")) {
            Matcher names = word.matcher(row.split("\\|")[1]);
            while (names.find()) {
                documented.add(names.group(1));
            }
        }
        documented.remove(PREFIX);
        Asked asked = new Asked();
        new ParitasHdfs.Settings(asked);
        assertEquals(documented, asked.names);
    }
}
