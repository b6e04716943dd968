package io.paritas.lab;

import io.paritas.files.ParityValue;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Arrays;

/**
 * How fast the client sums up data for parity: POCache's Table 1, with XOR in place of Reed-Solomon. Prints a table. CPU time of
 * the thread counts, so that other programs disturb little.
 */
public final class Coding {
    private static final int MIB = 1 << 20;
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final int[] BLOCKS_MIB = {16, 32, 64, 128};
    /** Number of times that each stripe is coded. The median counts. */
    private static final int ROUNDS = 9;
    /** So many bytes are coded before, so that the JVM has compiled the loop. */
    private static final long WARM_BYTES = 4L << 30;

    private Coding() {}

    /** `k` data blocks are coded subblock by subblock, as a reader does. Only one subblock of each is in memory. */
    public static void main(String[] words) {
        byte[][] data = new byte[10][MIB];
        for (int lane = 0; lane < data.length; lane++) {
            Arrays.fill(data[lane], (byte) (lane + 1));
        }
        byte[] parity = new byte[MIB];
        for (long done = 0; done < WARM_BYTES; done += (long) data.length * MIB) {
            code(data, data.length, parity);
        }
        System.out.println("k,block MiB,CPU ms of a stripe,data MB/s");
        for (int k = 4; k <= 10; k++) {
            for (int blockMib : BLOCKS_MIB) {
                long[] ns = new long[ROUNDS];
                for (int round = 0; round < ROUNDS; round++) {
                    long startNs = THREADS.getCurrentThreadCpuTime();
                    for (int sub = 0; sub < blockMib; sub++) {
                        code(data, k, parity);
                    }
                    ns[round] = THREADS.getCurrentThreadCpuTime() - startNs;
                }
                Arrays.sort(ns);
                long middle = ns[ROUNDS / 2];
                System.out.printf("%d,%d,%.1f,%.0f%n", k, blockMib, middle / 1e6, (double) k * blockMib * MIB * 1e3 / middle);
            }
        }
        // The sums are used, or the JVM could leave them out.
        System.err.println("checksum " + Arrays.hashCode(parity));
    }

    private static void code(byte[][] data, int k, byte[] parity) {
        Arrays.fill(parity, (byte) 0);
        for (int lane = 0; lane < k; lane++) {
            ParityValue.xor(parity, data[lane], MIB);
        }
    }
}
