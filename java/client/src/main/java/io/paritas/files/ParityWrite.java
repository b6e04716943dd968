package io.paritas.files;

/**
 * Makes the parity of a file while its bytes are written in order (POCache, §3.1): each parity subblock is a sum that grows by
 * each data subblock. It is complete when the last data unit of its stripe, or the file's end, has passed it.
 *
 * <p>A stripe of a contiguous file is k blocks: as many sums are under way as a block has subblocks. A stripe of a striped
 * file is a block group, and a subblock is the sum of a row of k cells: one sum is under way.
 *
 * <p>Pure: it holds no bytes, and says through {@link Out} what goes where.
 */
public final class ParityWrite {
    /** What is to be done. */
    public interface Out {
        /**
         * Adds `count` of the bytes just written, from index `from` on, to the sum of subblock `sub` of the current
         * stripe, from offset `at` on. `begins`: they are of the first block or cell, so they begin the sum.
         */
        void add(int sub, int at, int from, int count, boolean begins);

        /** This subblock's sum is complete. */
        void put(long stripe, int sub, int length);
    }

    private final boolean isStriped;
    private final int k;
    private final long blockBytes;
    private final int subBytes;
    private long length;
    private long subblocks;

    /** A striped file's cells are subblocks, and its blocks are whole cells. */
    public ParityWrite(boolean isStriped, int k, long blockBytes, int subBytes) {
        if (k < 1 || blockBytes < 1 || subBytes < 1) {
            throw new IllegalArgumentException("a stripe needs a block, a block a byte, and a subblock too");
        }
        if (isStriped && blockBytes % subBytes != 0) {
            throw new IllegalArgumentException("a block of " + blockBytes + " bytes is not of whole cells of " + subBytes);
        }
        this.isStriped = isStriped;
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
            long stripe = length / (blockBytes * k);
            long inStripe = length % (blockBytes * k);
            int sub = isStriped ? (int) (inStripe / rowBytes()) : (int) (inStripe % blockBytes / subBytes);
            long unit = isStriped ? inStripe % rowBytes() / subBytes : inStripe / blockBytes;
            int at = (int) ((isStriped ? inStripe : inStripe % blockBytes) % subBytes);
            int room = subLength(sub, blockBytes) - at;
            int part = Math.min(count - done, room);
            out.add(sub, at, done, part, unit == 0);
            length += part;
            done += part;
            if (part == room && unit == k - 1) {
                put(stripe, sub, at + part, out);
            }
        }
    }

    /** The file is closed: what the current stripe has is complete. */
    public void end(Out out) {
        long stripe = length / (blockBytes * k);
        long inStripe = length % (blockBytes * k);
        if (isStriped) {
            long inRow = inStripe % rowBytes();
            if (inRow > 0) {
                // The row's first cell is its longest.
                put(stripe, (int) (inStripe / rowBytes()), (int) Math.min(inRow, subBytes), out);
            }
            return;
        }
        long parity = Math.min(inStripe, blockBytes);
        long inLast = inStripe - (k - 1) * blockBytes;
        for (int sub = 0; (long) sub * subBytes < parity; sub++) {
            boolean isPut = inLast >= (long) sub * subBytes + subLength(sub, blockBytes);
            if (!isPut) {
                put(stripe, sub, subLength(sub, parity), out);
            }
        }
    }

    private long rowBytes() {
        return (long) k * subBytes;
    }

    private void put(long stripe, int sub, int bytes, Out out) {
        subblocks++;
        out.put(stripe, sub, bytes);
    }

    private int subLength(int sub, long bytes) {
        return (int) Math.min(subBytes, bytes - (long) sub * subBytes);
    }
}
