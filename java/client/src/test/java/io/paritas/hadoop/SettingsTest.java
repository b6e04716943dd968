package io.paritas.hadoop;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertThrows;
import static org.junit.Assert.assertTrue;

import io.paritas.files.FilesClient;
import org.apache.hadoop.conf.Configuration;
import org.junit.Test;

/** Wrong values: the error names the setting, and what it may be. */
public final class SettingsTest {
    private static ParitasHdfs.Settings of(String setting, String value) {
        Configuration conf = new Configuration(false);
        conf.set(setting, value);
        return new ParitasHdfs.Settings(conf);
    }

    private static void assertError(String setting, String value, String form) {
        String text = assertThrows(IllegalArgumentException.class, () -> of(setting, value)).getMessage();
        assertTrue(text, text.startsWith(setting + " is '" + value + "'; it must be " + form));
    }

    @Test
    public void aWrongSizeNamesItsSetting() {
        for (String name : new String[] {"min.file", "write.file.max", "prefetch.rate", "subblock", "read.memory"}) {
            for (String wrong : new String[] {"640mb", "much", ""}) {
                assertError("fs.paritas." + name, wrong, "a number of bytes, such as 4096, 800m or 1g");
            }
        }
        assertEquals(8 << 20, of("fs.paritas.min.file", "8m").minFileBytes);
    }

    @Test
    public void aWrongNumberNamesItsSetting() {
        assertError("fs.paritas.k", "four", "a whole number");
        assertError("fs.paritas.timeout.ms", "2s", "a whole number");
        assertError("fs.paritas.hedge.budget", "10%", "a number such as 0.1");
    }

    @Test
    public void aWrongAddressNamesItsSetting() {
        for (String setting : new String[] {"fs.paritas.steward", "fs.paritas.cache"}) {
            FilesClient.Settings shared = of(setting, "127.0.0.1").shared;
            String text = assertThrows(IllegalArgumentException.class, () -> FilesClient.of(shared)).getMessage();
            assertEquals(setting + ": '127.0.0.1' is not host:port", text);
        }
    }

    @Test
    public void theParityIsAskedForWhenALaneIsBehindOrAtOnce() throws Exception {
        for (String value : new String[] {"at-once", "when-behind"}) {
            FilesClient.Settings shared = of("fs.paritas.read.parity", value).shared;
            shared.steward = "127.0.0.1:1";
            shared.cache = "127.0.0.1:1";
            assertEquals(value, value.equals("at-once"), FilesClient.of(shared).wantsParityFor("127.0.0.1:2"));
        }
        String wrong = assertThrows(IllegalArgumentException.class, () -> of("fs.paritas.read.parity", "never")).getMessage();
        assertEquals("fs.paritas.read.parity is 'never'; 'when-behind' and 'at-once' are possible", wrong);
    }
}
