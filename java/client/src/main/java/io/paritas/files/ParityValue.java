package io.paritas.files;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * A parity subblock as the cache holds it, all integers little-endian:
 *
 * <pre>
 *  0  magic u16 0x5046 | 2  format u8 1 | 3  flags u8 0 | 4  CRC-32C u32 of the payload | 8  version u64 | 16  payload
 * </pre>
 */
public final class ParityValue {
    public static final int HEADER_BYTES = 16;

    private static final short MAGIC = 0x5046;
    private static final byte FORMAT = 1;
    /** Two of them fit into the first cache of a core. */
    private static final int TILE_BYTES = 4096;

    private static final int PART_BYTES = 16 << 10;

    private ParityValue() {}

    public static byte[] header(long version, byte[] payload, int length) {
        ByteBuffer header = ByteBuffer.allocate(HEADER_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        header.putShort(MAGIC).put(FORMAT).put((byte) 0).putInt(Crc32c.of(payload, 0, length)).putLong(version);
        return header.array();
    }

    /** Whether the payload is the parity of this version. Version 0 in the header: the key's token alone decides. */
    public static boolean isOf(long version, byte[] header, byte[] payload, int length) {
        ByteBuffer in = ByteBuffer.wrap(header).order(ByteOrder.LITTLE_ENDIAN);
        boolean known = in.getShort() == MAGIC && in.get() == FORMAT && in.get() == 0;
        int crc = in.getInt();
        long stored = in.getLong();
        return known && (stored == version || stored == 0) && crc == Crc32c.of(payload, 0, length);
    }

    public static String key(String namespace, long id, String token, long stripe, int sub) {
        return "fp:" + namespace + ":" + id + ":" + token + ":" + stripe + ":0:" + sub;
    }

    /** `into` ^= `from`. */
    public static void xor(byte[] into, byte[] from, int length) {
        xor(into, from, 0, length);
    }

    /**
     * `into` ^= each of `from`, of which the first `lengths` bytes count. It goes part by part, so that a part of `into` stays
     * in a core's cache.
     */
    public static void xorAll(byte[] into, byte[][] from, int[] lengths) {
        for (int start = 0; start < into.length; start += PART_BYTES) {
            for (int each = 0; each < from.length; each++) {
                xor(into, from[each], start, Math.min(start + PART_BYTES, lengths[each]));
            }
        }
    }

    private static void xor(byte[] into, byte[] from, int start, int end) {
        // The JIT makes vector instructions of a plain loop with one index, and not of one with two: that takes five times
        // as long.
        for (int i = start; i < end; i++) {
            into[i] ^= from[i];
        }
    }

    /** `into` from `at` on ^= `length` bytes of `from` from `first` on. */
    public static void xor(byte[] into, int at, byte[] from, int first, int length) {
        if (length < 2 * TILE_BYTES) {
            for (int i = 0; i < length; i++) {
                into[at + i] ^= from[first + i];
            }
            return;
        }
        byte[] sum = new byte[TILE_BYTES];
        byte[] other = new byte[TILE_BYTES];
        for (int done = 0; done < length; done += TILE_BYTES) {
            int count = Math.min(TILE_BYTES, length - done);
            System.arraycopy(into, at + done, sum, 0, count);
            System.arraycopy(from, first + done, other, 0, count);
            xor(sum, other, count);
            System.arraycopy(sum, 0, into, at + done, count);
        }
    }
}
