package io.paritas.files;

import java.io.Closeable;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The end of one use of a connection. A connection that is used for longer is closed, which ends a blocked read or write.
 *
 * <p>The timeout of a socket bounds one read only. A peer that sends a byte now and then never meets it, and a write to one that
 * takes none has no timeout.
 */
final class Deadline implements Closeable {
    private static final ScheduledThreadPoolExecutor TIMER = timer();

    private final ScheduledFuture<?> end;
    private RespConnection watched;
    private boolean passed;

    Deadline(long ms) {
        end = TIMER.schedule(this::pass, ms, TimeUnit.MILLISECONDS);
    }

    /** This connection is used now. */
    synchronized void watch(RespConnection connection) {
        watched = connection;
        if (passed) {
            connection.close();
        }
    }

    /** Whether the use has taken too long, and so its connection is closed. */
    synchronized boolean hasPassed() {
        return passed;
    }

    private synchronized void pass() {
        passed = true;
        if (watched != null) {
            watched.close();
        }
    }

    /** The use has ended. Its connection will not be closed from now on. */
    @Override
    public synchronized void close() {
        watched = null;
        end.cancel(false);
    }

    private static ScheduledThreadPoolExecutor timer() {
        ScheduledThreadPoolExecutor timer = new ScheduledThreadPoolExecutor(1, work -> {
            Thread thread = new Thread(work, "paritas-deadline");
            thread.setDaemon(true);
            return thread;
        });
        timer.setRemoveOnCancelPolicy(true);
        return timer;
    }
}
