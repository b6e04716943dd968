package io.paritas.files;

import static org.junit.Assert.assertArrayEquals;
import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertNull;
import static org.junit.Assert.assertTrue;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import org.junit.Test;

/** The machine over files of random lengths, written in pieces of random lengths, beside the plainest way to make parity. */
public class ParityWriteTest {
    private static final int RUNS = 2000;

    /** Sums as the machine asks for them. */
    private static final class Sums implements ParityWrite.Out {
        final byte[] file;
        final int subBytes;
        final Map<Integer, byte[]> sums = new HashMap<>();
        final Map<String, byte[]> put = new HashMap<>();
        int told;

        Sums(byte[] file, int subBytes) {
            this.file = file;
            this.subBytes = subBytes;
        }

        @Override
        public void add(int sub, int at, int from, int count, boolean begins) {
            if (begins && at == 0) {
                // Memory has what the last user left there.
                byte[] sum = new byte[subBytes];
                Arrays.fill(sum, (byte) 0x5A);
                assertNull("a sum that is not put yet", sums.put(sub, sum));
            }
            byte[] sum = sums.get(sub);
            for (int i = 0; i < count; i++) {
                byte data = file[told + from + i];
                sum[at + i] = begins ? data : (byte) (sum[at + i] ^ data);
            }
        }

        @Override
        public void put(long stripe, int sub, int length) {
            byte[] sum = Arrays.copyOf(sums.remove(sub), length);
            assertNull("put twice", put.put(stripe + ":" + sub, sum));
        }
    }

    /** Parity by stripe and subblock, made of the whole file. */
    static Map<String, byte[]> plain(byte[] file, int k, int blockBytes, int subBytes) {
        Map<String, byte[]> parity = new HashMap<>();
        for (int start = 0; start < file.length; start += k * blockBytes) {
            int longest = Math.min(blockBytes, file.length - start);
            byte[] block = new byte[longest];
            for (int i = start; i < Math.min(file.length, start + k * blockBytes); i++) {
                block[(i - start) % blockBytes] ^= file[i];
            }
            for (int sub = 0; sub * subBytes < longest; sub++) {
                byte[] piece = Arrays.copyOfRange(block, sub * subBytes, Math.min(longest, (sub + 1) * subBytes));
                parity.put(start / (k * blockBytes) + ":" + sub, piece);
            }
        }
        return parity;
    }

    @Test
    public void parityIsTheSumOfTheBlocksOfEachStripe() {
        for (int seed = 0; seed < RUNS; seed++) {
            Random random = new Random(seed);
            int k = 1 + random.nextInt(5);
            int subBytes = 1 + random.nextInt(8);
            int blockBytes = 1 + random.nextInt(30);
            byte[] file = new byte[random.nextInt(4 * k * blockBytes)];
            random.nextBytes(file);
            ParityWrite machine = new ParityWrite(false, k, blockBytes, subBytes);
            Sums sums = new Sums(file, subBytes);
            while (sums.told < file.length) {
                int count = Math.min(file.length - sums.told, random.nextInt(2 * blockBytes));
                machine.data(count, sums);
                sums.told += count;
            }
            int whole = file.length / (k * blockBytes) * machine.subs();
            assertTrue("what is complete is not held back", sums.put.size() >= whole);
            machine.end(sums);
            Map<String, byte[]> wanted = plain(file, k, blockBytes, subBytes);
            assertEquals("seed " + seed, wanted.keySet(), sums.put.keySet());
            wanted.forEach((name, bytes) -> assertArrayEquals(name, bytes, sums.put.get(name)));
            assertTrue(sums.sums.isEmpty());
            assertEquals(file.length, machine.length());
            assertEquals(wanted.size(), machine.subblocks());
        }
    }

    /** Parity by block group and row of cells, made of the whole file. */
    static Map<String, byte[]> plainStriped(byte[] file, int k, int blockBytes, int cellBytes) {
        Map<String, byte[]> parity = new HashMap<>();
        for (int at = 0; at < file.length; at++) {
            int group = at / (k * blockBytes);
            int row = at % (k * blockBytes) / (k * cellBytes);
            int rowStart = group * k * blockBytes + row * k * cellBytes;
            byte[] sum = parity.computeIfAbsent(
                    group + ":" + row, name -> new byte[Math.min(cellBytes, file.length - rowStart)]);
            sum[(at - rowStart) % cellBytes] ^= file[at];
        }
        return parity;
    }

    @Test
    public void parityOfAStripedFileIsTheSumOfEachRowOfCells() {
        int partRows = 0;
        for (int seed = 0; seed < RUNS; seed++) {
            Random random = new Random(seed);
            int k = 1 + random.nextInt(6);
            int cellBytes = 1 + random.nextInt(8);
            int blockBytes = cellBytes * (1 + random.nextInt(4));
            byte[] file = new byte[random.nextInt(4 * k * blockBytes + 1)];
            random.nextBytes(file);
            ParityWrite machine = new ParityWrite(true, k, blockBytes, cellBytes);
            Sums sums = new Sums(file, cellBytes);
            while (sums.told < file.length) {
                int count = Math.min(file.length - sums.told, random.nextInt(2 * blockBytes));
                machine.data(count, sums);
                sums.told += count;
                assertTrue("one sum at a time", sums.sums.size() <= 1);
                int rows = sums.told / (k * cellBytes);
                assertEquals("a row is complete with its last cell", rows, sums.put.size());
            }
            machine.end(sums);
            Map<String, byte[]> wanted = plainStriped(file, k, blockBytes, cellBytes);
            assertEquals("seed " + seed, wanted.keySet(), sums.put.keySet());
            wanted.forEach((name, bytes) -> assertArrayEquals(name, bytes, sums.put.get(name)));
            assertTrue(sums.sums.isEmpty());
            assertEquals(wanted.size(), machine.subblocks());
            partRows += file.length % (k * cellBytes) > 0 ? 1 : 0;
        }
        assertTrue("files that end within a row: " + partRows, partRows > RUNS / 4 && partRows < RUNS);
    }

    @Test(expected = IllegalArgumentException.class)
    public void blocksOfAStripedFileAreWholeCells() {
        new ParityWrite(true, 3, 10, 4);
    }

    /** Short and long ones, where the sum goes by tiles. */
    @Test
    public void sumsAreThoseOfSingleBytes() {
        Random random = new Random(5);
        for (int length : new int[] {0, 1, 4095, 8191, 8192, 8193, 12_288, 20_000}) {
            int at = random.nextInt(50);
            int first = random.nextInt(50);
            byte[] into = new byte[at + length + 20];
            byte[] from = new byte[first + length];
            random.nextBytes(into);
            random.nextBytes(from);
            byte[] wanted = into.clone();
            for (int i = 0; i < length; i++) {
                wanted[at + i] ^= from[first + i];
            }
            ParityValue.xor(into, at, from, first, length);
            assertArrayEquals("length " + length, wanted, into);
        }
    }
}
