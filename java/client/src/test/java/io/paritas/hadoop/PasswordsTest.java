package io.paritas.hadoop;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNotEquals;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.security.alias.CredentialProvider;
import org.apache.hadoop.security.alias.CredentialProviderFactory;
import org.junit.Rule;
import org.junit.Test;
import org.junit.rules.TemporaryFolder;

/** Where passwords come from. None of it may stop a file system from being made. */
public final class PasswordsTest {
    private static final String NAME = "fs.paritas.cache.password";

    @Rule
    public final TemporaryFolder folder = new TemporaryFolder();

    private String file(String text) throws IOException {
        File file = folder.newFile();
        Files.write(file.toPath(), text.getBytes(StandardCharsets.UTF_8));
        return file.getPath();
    }

    private static String of(String... settings) {
        Configuration conf = new Configuration(false);
        for (int i = 0; i < settings.length; i += 2) {
            conf.set(settings[i], settings[i + 1]);
        }
        return Passwords.of(conf, NAME);
    }

    @Test
    public void aCredentialProviderComesFirst() throws IOException {
        String store = "localjceks://file" + folder.getRoot() + "/a.jceks";
        Configuration conf = new Configuration(false);
        conf.set(CredentialProviderFactory.CREDENTIAL_PROVIDER_PATH, store);
        CredentialProvider provider = CredentialProviderFactory.getProviders(conf).get(0);
        provider.createCredentialEntry(NAME, "from the store".toCharArray());
        provider.flush();
        String path = CredentialProviderFactory.CREDENTIAL_PROVIDER_PATH;
        assertEquals("from the store", of(path, store, NAME, "plain", NAME + ".file", file("from a file\n")));
        assertEquals("plain", of(NAME, "plain", NAME + ".file", file("from a file\n")));
        assertEquals("from the store", of(path, store));
    }

    @Test
    public void aFileHasOneLine() throws IOException {
        assertEquals("with a space", of(NAME + ".file", file("with a space\n")));
        assertEquals("\u00fc", of(NAME + ".file", file("\u00fc\r\n")));
        assertEquals("no end", of(NAME + ".file", file("no end")));
        assertEquals("", of());
    }

    @Test
    public void whatCannotBeReadCountsAsNone() throws IOException {
        StringBuilder long600 = new StringBuilder();
        for (int i = 0; i < 600; i++) {
            long600.append('x');
        }
        for (String text : new String[] {"", "\n", "two\nlines\n", long600.toString()}) {
            assertEquals("", of(NAME + ".file", file(text)));
        }
        assertEquals("", of(NAME + ".file", folder.getRoot() + "/none"));
        assertEquals("", of(NAME + ".file", "\0"));
        assertEquals("", of(NAME + ".file", folder.getRoot().getPath()));
        String broken = "localjceks://file" + file("not a key store");
        assertEquals("", of(CredentialProviderFactory.CREDENTIAL_PROVIDER_PATH, broken));
        // A store in HDFS itself is left out, and not asked for.
        assertEquals("", of(
                CredentialProviderFactory.CREDENTIAL_PROVIDER_PATH, "jceks://hdfs@nowhere.invalid:1/a.jceks",
                "fs.hdfs.impl", ParitasHdfs.class.getName()));
    }

    @Test
    public void clientsWithOtherPasswordsAreOthers() {
        Configuration conf = new Configuration(false);
        ParitasHdfs.Settings none = new ParitasHdfs.Settings(conf);
        conf.set(NAME, "secret");
        ParitasHdfs.Settings some = new ParitasHdfs.Settings(conf);
        assertEquals("secret", some.shared.cachePassword);
        assertNotEquals(io.paritas.files.FilesClient.of(none.shared), io.paritas.files.FilesClient.of(some.shared));
    }
}
