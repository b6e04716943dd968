package io.paritas.hadoop;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import org.apache.hadoop.hdfs.DFSOutputStream;
import org.apache.hadoop.hdfs.DFSStripedOutputStream;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;

/** What Hadoop's own stream knows of the file that it writes. */
final class NewFile {
    // Not public, but the same in all versions that we support. Without them no parity is made of files that are written.
    private static final Field PATH = field(DFSOutputStream.class, "src");
    private static final Field BLOCK_BYTES = field(DFSOutputStream.class, "blockSize");
    private static final Field POLICY = field(DFSStripedOutputStream.class, "ecPolicy");
    private static final Method LAST_BLOCK = lastBlockMethod();

    final DFSOutputStream stream;
    final long id;
    final String path;
    /** As the NameNode has it, which may be other than the writer asked for. */
    final long blockBytes;
    /** Null of a contiguous file. */
    final ErasureCodingPolicy policy;

    private NewFile(DFSOutputStream stream, String path, long blockBytes, ErasureCodingPolicy policy) {
        this.stream = stream;
        id = stream.getFileId();
        this.path = path;
        this.blockBytes = blockBytes;
        this.policy = policy;
    }

    /** Null if this version of Hadoop does not tell. */
    static NewFile of(DFSOutputStream stream) {
        boolean isStriped = stream instanceof DFSStripedOutputStream;
        if (PATH == null || BLOCK_BYTES == null || LAST_BLOCK == null || isStriped && POLICY == null) {
            return null;
        }
        try {
            ErasureCodingPolicy policy = isStriped ? (ErasureCodingPolicy) POLICY.get(stream) : null;
            return isStriped && policy == null
                    ? null : new NewFile(stream, (String) PATH.get(stream), BLOCK_BYTES.getLong(stream), policy);
        } catch (ReflectiveOperationException | ClassCastException e) {
            return null;
        }
    }

    /** The block or block group that was written last. Null if there is none. */
    ExtendedBlock lastBlock() throws IOException {
        try {
            return (ExtendedBlock) LAST_BLOCK.invoke(stream);
        } catch (ReflectiveOperationException e) {
            throw new IOException("Hadoop's stream does not tell its last block", e);
        }
    }

    boolean isStriped() {
        return policy != null;
    }

    /** Whether the reader of such a file takes whole stripes: see {@link BlockMap#of}. */
    boolean isUsual(int subBytes) {
        return isStriped() ? policy.getCellSize() == subBytes && blockBytes % subBytes == 0 : blockBytes >= subBytes;
    }

    /** Blocks or internal data blocks of a stripe. `k` is for contiguous files. */
    int units(int k) {
        return isStriped() ? policy.getNumDataUnits() : k;
    }

    private static Method lastBlockMethod() {
        try {
            Method found = DFSOutputStream.class.getDeclaredMethod("getBlock");
            found.setAccessible(true);
            return found;
        } catch (ReflectiveOperationException | RuntimeException e) {
            return null;
        }
    }

    /** A field that is not public. Null if this version of Hadoop does not have it. */
    static Field field(Class<?> type, String name) {
        try {
            Field found = type.getDeclaredField(name);
            found.setAccessible(true);
            return found;
        } catch (ReflectiveOperationException | RuntimeException e) {
            return null;
        }
    }
}
