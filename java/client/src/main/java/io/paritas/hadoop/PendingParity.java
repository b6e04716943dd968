package io.paritas.hadoop;

import io.paritas.files.FileParity;
import io.paritas.files.WrittenParity;
import java.util.Collections;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/** Files that are read or written, and those whose parity is not yet committed. A program must not end before it is. */
final class PendingParity {
    private final Set<WrittenParity> writing = Collections.newSetFromMap(new ConcurrentHashMap<>());
    private final Set<FileParity> reading = Collections.newSetFromMap(new ConcurrentHashMap<>());

    void add(WrittenParity parity) {
        writing.removeIf(WrittenParity::isOver);
        writing.add(parity);
    }

    void add(FileParity parity) {
        reading.removeIf(FileParity::isOver);
        reading.add(parity);
    }

    /** Waits for parity of closed files, so long at most. Files that are still being written get none. */
    void finish(long timeoutMs) {
        long deadlineNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
        try {
            for (WrittenParity parity : writing) {
                if (parity.hasEnded()) {
                    parity.await(deadlineNs);
                } else {
                    parity.fail();
                }
            }
            for (FileParity parity : reading) {
                parity.await(deadlineNs);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
