package io.paritas.hadoop;

import io.paritas.files.FileParity;
import io.paritas.files.WrittenParity;
import java.util.Collections;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Files that are read or written, those whose parity is not yet committed, and what the steward is not yet told. A program must
 * not end before.
 */
final class PendingParity {
    /** After a wait that was too short, further calls do not wait for this time: a JVM that ends has 30 s for all of them. */
    private static final long LATE_NS = TimeUnit.SECONDS.toNanos(30);
    /** When the last such wait ended; null: there was none. */
    private static volatile Long lateNs;

    private final Set<WrittenParity> writing = Collections.newSetFromMap(new ConcurrentHashMap<>());
    private final Set<FileParity> reading = Collections.newSetFromMap(new ConcurrentHashMap<>());
    private final Set<Future<?>> telling = Collections.newSetFromMap(new ConcurrentHashMap<>());

    void add(WrittenParity parity) {
        writing.removeIf(WrittenParity::isOver);
        writing.add(parity);
    }

    void add(FileParity parity) {
        reading.removeIf(FileParity::isOver);
        reading.add(parity);
    }

    void add(Future<?> message) {
        telling.removeIf(Future::isDone);
        telling.add(message);
    }

    /** Waits for parity of closed files, so long at most. Files that are still being written get none. */
    void finish(long timeoutMs) {
        long nowNs = System.nanoTime();
        Long before = lateNs;
        boolean isLate = before != null && nowNs - before < LATE_NS;
        long deadlineNs = nowNs + (isLate ? 0 : TimeUnit.MILLISECONDS.toNanos(timeoutMs));
        boolean isDone = true;
        try {
            for (WrittenParity parity : writing) {
                if (parity.hasEnded()) {
                    isDone &= parity.await(deadlineNs);
                } else {
                    parity.fail();
                }
            }
            for (FileParity parity : reading) {
                isDone &= parity.await(deadlineNs);
            }
            for (Future<?> message : telling) {
                isDone &= hasEnded(message, deadlineNs);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        if (!isLate && !isDone) {
            lateNs = System.nanoTime();
        }
    }

    private static boolean hasEnded(Future<?> message, long deadlineNs) throws InterruptedException {
        try {
            message.get(Math.max(0, deadlineNs - System.nanoTime()), TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            return false;
        } catch (ExecutionException e) {
            // It cannot be told.
        }
        return true;
    }
}
