package io.paritas.lab;

import io.paritas.hadoop.ParitasHdfs;
import java.io.IOException;
import java.net.URI;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;

/** Ours, and its counters on stderr when the JVM ends: so a test suite shows that its reads went through it. */
public final class CountedHdfs extends ParitasHdfs {
    private static final AtomicBoolean HOOKED = new AtomicBoolean();

    @Override
    public void initialize(URI uri, Configuration conf) throws IOException {
        super.initialize(uri, conf);
        if (HOOKED.compareAndSet(false, true)) {
            Runtime.getRuntime().addShutdownHook(new Thread(() -> System.err.println("counters: " + counters())));
        }
    }
}
