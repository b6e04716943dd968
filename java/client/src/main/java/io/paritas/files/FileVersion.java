package io.paritas.files;

/** The version of a file: FNV-1a (64 bits) of what changes whenever its bytes change. */
public final class FileVersion {
    private static final long OFFSET = 0xcbf29ce484222325L;
    private static final long PRIME = 0x100000001b3L;

    private FileVersion() {}

    public static long of(long id, long length, long modificationMs, long lastBlockId, long lastGeneration) {
        long hash = OFFSET;
        for (long part : new long[] {id, length, modificationMs, lastBlockId, lastGeneration}) {
            for (int shift = 0; shift < Long.SIZE; shift += Byte.SIZE) {
                hash = (hash ^ part >>> shift & 0xFF) * PRIME;
            }
        }
        return hash;
    }

    public static String text(long version) {
        // Not by a format: a JVM's first costs milliseconds.
        String hex = Long.toHexString(version);
        return "0000000000000000".substring(hex.length()) + hex;
    }
}
