package io.paritas.files;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Arrays;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * A value of parity as the cache holds it, all integers little-endian:
 *
 * <pre>
 *  0  magic u16 0x5046 | 2  format u8 2 | 3  flags u8 | 4  CRC-32C u32 | 8  MAC, 16 bytes | 24  payload
 * </pre>
 *
 * CRC and MAC are of the key, a zero byte and the payload: a value under another key is not taken for its own. The MAC is the
 * first half of HMAC-SHA256 under a secret that clients share, so that who only writes to the cache cannot make one.
 */
public final class ParityValue {
    public static final int HEADER_BYTES = 24;

    private static final short MAGIC = 0x5046;
    private static final byte FORMAT = 2;
    private static final byte HAS_MAC = 1;
    private static final int MAC_OFFSET = 8;
    private static final int MAC_BYTES = 16;
    private static final String MAC = "HmacSHA256";
    /** Two of them fit into the first cache of a core. */
    private static final int TILE_BYTES = 4096;

    private static final int PART_BYTES = 16 << 10;

    private ParityValue() {}

    /** `secret` is empty if clients share none. */
    public static byte[] header(byte[] secret, String key, byte[] payload, int length) {
        byte[] place = place(key);
        ByteBuffer header = ByteBuffer.allocate(HEADER_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        header.putShort(MAGIC).put(FORMAT).put(secret.length > 0 ? HAS_MAC : 0).putInt(Crc32c.of(place, payload, length));
        if (secret.length > 0) {
            header.put(mac(secret, place, payload, length));
        }
        return header.array();
    }

    /** Whether a client made this payload for this key. Without a secret, CRC and key alone decide. */
    public static boolean isOf(byte[] secret, String key, byte[] header, byte[] payload, int length) {
        ByteBuffer in = ByteBuffer.wrap(header).order(ByteOrder.LITTLE_ENDIAN);
        if (in.getShort() != MAGIC || in.get() != FORMAT) {
            return false;
        }
        byte flags = in.get();
        byte[] place = place(key);
        if (flags != 0 && flags != HAS_MAC || in.getInt() != Crc32c.of(place, payload, length)) {
            return false;
        }
        byte[] stored = Arrays.copyOfRange(header, MAC_OFFSET, HEADER_BYTES);
        return secret.length == 0
                || flags == HAS_MAC && MessageDigest.isEqual(stored, mac(secret, place, payload, length));
    }

    private static byte[] place(String key) {
        return (key + '\0').getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] mac(byte[] secret, byte[] place, byte[] payload, int length) {
        try {
            Mac mac = Mac.getInstance(MAC);
            mac.init(new SecretKeySpec(secret, MAC));
            mac.update(place);
            mac.update(payload, 0, length);
            return Arrays.copyOf(mac.doFinal(), MAC_BYTES);
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException("every JVM has " + MAC, e);
        }
    }

    /** The key of a parity subblock. */
    public static String key(String namespace, long id, String token, long stripe, int sub) {
        return prefix(namespace, id, token) + stripe + ":0:" + sub;
    }

    /** The key of the value that says of which version of the file the parity under this token is. */
    public static String versionKey(String namespace, long id, String token) {
        return prefix(namespace, id, token) + "version";
    }

    private static String prefix(String namespace, long id, String token) {
        return "fp:" + namespace + ':' + id + ':' + token + ':';
    }

    /** The payload under `versionKey`. */
    public static byte[] version(long version) {
        return ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN).putLong(version).array();
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
