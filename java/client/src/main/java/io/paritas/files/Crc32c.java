package io.paritas.files;

import java.util.zip.Checksum;

/** CRC-32C (Castagnoli). The JVM's own from Java 9 on; on Java 8 a table, about ten times slower. */
public final class Crc32c {
    private static final int POLYNOMIAL = 0x82F63B78;
    private static final int[] TABLE = table();
    private static final Class<?> OF_THE_JVM = ofTheJvm();

    private static final byte[] NOTHING = {};

    private Crc32c() {}

    public static int of(byte[] bytes, int length) {
        return of(NOTHING, bytes, length);
    }

    /** Of one array after the other. */
    public static int of(byte[] first, byte[] then, int length) {
        if (OF_THE_JVM != null) {
            try {
                Checksum checksum = (Checksum) OF_THE_JVM.getDeclaredConstructor().newInstance();
                checksum.update(first, 0, first.length);
                checksum.update(then, 0, length);
                return (int) checksum.getValue();
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException("java.util.zip.CRC32C is there but can't be made", e);
            }
        }
        return byTable(first, then, length);
    }

    static int byTable(byte[] first, byte[] then, int length) {
        return ~byTable(byTable(-1, first, first.length), then, length);
    }

    private static int byTable(int before, byte[] bytes, int length) {
        int crc = before;
        for (int i = 0; i < length; i++) {
            crc = TABLE[(crc ^ bytes[i]) & 0xFF] ^ crc >>> 8;
        }
        return crc;
    }

    private static Class<?> ofTheJvm() {
        try {
            return Class.forName("java.util.zip.CRC32C");
        } catch (ClassNotFoundException e) {
            return null;
        }
    }

    private static int[] table() {
        int[] table = new int[256];
        for (int i = 0; i < 256; i++) {
            int crc = i;
            for (int bit = 0; bit < 8; bit++) {
                crc = (crc & 1) != 0 ? crc >>> 1 ^ POLYNOMIAL : crc >>> 1;
            }
            table[i] = crc;
        }
        return table;
    }
}
