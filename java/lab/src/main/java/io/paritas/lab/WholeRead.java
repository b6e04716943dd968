package io.paritas.lab;

import java.io.IOException;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/**
 * One of the systems that the lab compares: a way to read a whole file. The setting `lab.system` names it.
 *
 * <pre>
 * stream         the file system's stream, from begin to end. With Hadoop's own file system: the paper's Vanilla. With
 *                `fs.hdfs.impl` = ParitasHdfs and a steward: POCache
 * hedged         HR: Hadoop's own hedged reads, one positional read of a whole block after the other. The mode's settings
 *                have the threshold. Hadoop hedges only reads by position, and all file systems of a JVM share the switch:
 *                a JVM with this system has no other
 * parallel       PR: Hadoop's own positional reads of whole blocks, all at once
 * healthy        OR: as PR, but each block comes from a node that is not slow, and each from another node as far as the
 *                replicas allow. It is told by `believe` which nodes are slow, so it has what no real system has: an estimate
 *                that is never wrong
 * copies         SR and DC2: as PR, and the steward decides which files have copies of all their blocks in the cache: those
 *                come from there. A copy is a value like a parity subblock (`k` = 1). With `lab.reports` the steward is told
 *                how fast nodes are, and prefers files on slow ones: DC2. Without it sees no stragglers: SR
 * slow-copies    DC1: the same, but only of blocks on nodes that are slow, as told by `believe`
 * stored-parity  for files with the policy XOR-k-1: all data units and the parity that HDFS stores of them are read at
 *                once, and the first k of each row win. It is POCache without a cache. Hadoop's own stream reads that parity
 *                only after an error
 * </pre>
 */
interface WholeRead {
    /** Fills the buffer, which has the file's length. Returns how many blocks came from the cache. */
    int read(Path path, byte[] into) throws IOException;

    /** Waits for what goes on after reads. */
    default void settle() throws IOException {}

    /** From now on, these nodes (host:port) are taken to be slow. */
    default void believe(Set<String> slow) {}

    static WholeRead of(FileSystem fs, Configuration conf) throws IOException {
        DistributedFileSystem hdfs = (DistributedFileSystem) fs;
        String system = conf.get("lab.system", "stream");
        switch (system) {
            case "stream":
                return (path, into) -> stream(fs, path, into);
            case "hedged":
                return (path, into) -> blockAfterBlock(fs, path, into);
            case "parallel":
                return new BlocksAtOnce(hdfs, null, false);
            case "healthy":
                return new BlocksAtOnce(hdfs, null, true);
            case "copies":
                return new BlocksAtOnce(hdfs, new Copies(conf, false), false);
            case "slow-copies":
                return new BlocksAtOnce(hdfs, new Copies(conf, true), false);
            case "stored-parity":
                return new StoredParity(hdfs);
            default:
                throw new IOException("lab.system is '" + system + "', which does not exist");
        }
    }

    static int stream(FileSystem fs, Path path, byte[] into) throws IOException {
        try (FSDataInputStream in = fs.open(path)) {
            for (int done = 0; done < into.length; ) {
                int count = in.read(into, done, Math.min(Reads.BUFFER_BYTES, into.length - done));
                if (count < 0) {
                    throw new IOException("the stream ends at " + done);
                }
                done += count;
            }
        }
        return 0;
    }

    static int blockAfterBlock(FileSystem fs, Path path, byte[] into) throws IOException {
        try (HdfsDataInputStream in = (HdfsDataInputStream) fs.open(path)) {
            for (LocatedBlock block : in.getAllBlocks()) {
                int start = (int) block.getStartOffset();
                in.readFully(start, into, start, (int) block.getBlockSize());
            }
        }
        return 0;
    }

    /** What `believe` was told, for systems that want to know. */
    static Set<String> nodes(String[] words, int from) {
        return new HashSet<>(Arrays.asList(words).subList(from, words.length));
    }
}
