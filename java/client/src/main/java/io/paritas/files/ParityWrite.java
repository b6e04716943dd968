package io.paritas.files;

/**
 * Makes the parity of a contiguous file while its bytes are written in order (POCache, §3.1): each parity subblock is a sum
 * that grows by each data subblock, and is complete when the last block of its stripe, or the file's end, has passed it.
 *
 * <p>Pure: it holds no bytes, and says through {@link Out} what goes where.
 */
public final class ParityWrite {
    /** What is to be done. */
    public interface Out {
        /**
         * So many of the bytes just written, those from `from` on, go into the sum of a subblock of the current stripe, at `at`.
         * The first block's bytes begin the sum.
         */
        void add(int sub, int at, int from, int count, boolean begins);

        /** This subblock's sum is complete. */
        void put(long stripe, int sub, int length);
    }

    private final int k;
    private final long blockBytes;
    private final int subBytes;
    private long length;
    private long subblocks;

    public ParityWrite(int k, long blockBytes, int subBytes) {
        if (k < 1 || blockBytes < 1 || subBytes < 1) {
            throw new IllegalArgumentException("a stripe needs a block, a block a byte, and a subblock too");
        }
        this.k = k;
        this.blockBytes = blockBytes;
        this.subBytes = subBytes;
    }

    /** Subblocks of one parity block: so many sums are there at most. */
    public int subs() {
        return Math.toIntExact((blockBytes + subBytes - 1) / subBytes);
    }

    /** Bytes of the file so far. */
    public long length() {
        return length;
    }

    /** Subblocks that were complete so far. */
    public long subblocks() {
        return subblocks;
    }

    /** So many bytes were written. */
    public void data(int count, Out out) {
        for (int done = 0; done < count; ) {
            long inStripe = length % (blockBytes * k);
            long block = inStripe / blockBytes;
            long inBlock = inStripe % blockBytes;
            int sub = (int) (inBlock / subBytes);
            int at = (int) (inBlock % subBytes);
            int room = subLength(sub, blockBytes) - at;
            int part = Math.min(count - done, room);
            out.add(sub, at, done, part, block == 0);
            length += part;
            done += part;
            if (part == room && block == k - 1) {
                put((length - 1) / (blockBytes * k), sub, at + part, out);
            }
        }
    }

    /** The file is closed: what the current stripe has is complete. */
    public void end(Out out) {
        long inStripe = length % (blockBytes * k);
        long parity = Math.min(inStripe, blockBytes);
        long inLast = inStripe - (k - 1) * blockBytes;
        for (int sub = 0; (long) sub * subBytes < parity; sub++) {
            boolean isPut = inLast >= (long) sub * subBytes + subLength(sub, blockBytes);
            if (!isPut) {
                put(length / (blockBytes * k), sub, subLength(sub, parity), out);
            }
        }
    }

    private void put(long stripe, int sub, int bytes, Out out) {
        subblocks++;
        out.put(stripe, sub, bytes);
    }

    private int subLength(int sub, long bytes) {
        return (int) Math.min(subBytes, bytes - (long) sub * subBytes);
    }
}
