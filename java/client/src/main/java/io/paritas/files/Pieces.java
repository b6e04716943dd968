package io.paritas.files;

import java.util.ArrayDeque;
import java.util.Deque;

/** Memory of all reads of a JVM: a budget in bytes, and buffers of one subblock that are used again. */
public final class Pieces {
    private final int pieceBytes;
    private final long bytesMax;
    private final Deque<byte[]> free = new ArrayDeque<>();
    private long reserved;
    private long declined;

    public Pieces(int pieceBytes, long bytesMax) {
        this.pieceBytes = pieceBytes;
        this.bytesMax = bytesMax;
    }

    public int pieceBytes() {
        return pieceBytes;
    }

    /** Whether the bytes are the caller's from now on. If not, this counts as a read declined for memory. */
    public synchronized boolean reserve(long bytes) {
        boolean done = tryReserve(bytes);
        declined += done ? 0 : 1;
        return done;
    }

    /** The same for a caller that may try again. */
    public boolean tryReserve(long bytes) {
        return tryReserve(bytes, 0);
    }

    /** The same for one that leaves so many bytes to others. */
    public synchronized boolean tryReserve(long bytes, long spareBytes) {
        if (reserved + bytes + spareBytes > bytesMax) {
            return false;
        }
        reserved += bytes;
        return true;
    }

    public synchronized void release(long bytes) {
        reserved -= bytes;
        if (reserved == 0) {
            trim(bytesMax / 4);
        }
    }

    public synchronized long declined() {
        return declined;
    }

    public synchronized long reserved() {
        return reserved;
    }

    /** Its bytes are what the last user left there. */
    public byte[] take() {
        synchronized (this) {
            byte[] piece = free.pollFirst();
            if (piece != null) {
                return piece;
            }
        }
        return new byte[pieceBytes];
    }

    public synchronized void give(byte[] piece) {
        if ((free.size() + 1L) * pieceBytes <= bytesMax) {
            free.addFirst(piece);
        }
    }

    /** Keeps at most `bytes` bytes of free buffers and drops the others. */
    public synchronized void trim(long bytes) {
        while ((long) free.size() * pieceBytes > bytes) {
            free.pollLast();
        }
    }
}
