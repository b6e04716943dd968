package io.paritas.lab;

import io.paritas.files.FileParity;
import io.paritas.files.StewardClient;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.HdfsFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;

/** Reads all blocks of a contiguous file at once, each in a thread: from a DataNode, or as a copy from the cache. */
final class BlocksAtOnce implements WholeRead {
    private final DistributedFileSystem fs;
    /** Null without a cache. */
    private final Copies copies;
    private final boolean avoidsSlow;
    private final ExecutorService threads = Executors.newCachedThreadPool(work -> {
        Thread thread = new Thread(work, "lab-block");
        thread.setDaemon(true);
        return thread;
    });
    private volatile Set<String> slow = Collections.emptySet();

    BlocksAtOnce(DistributedFileSystem fs, Copies copies, boolean avoidsSlow) {
        this.fs = fs;
        this.copies = copies;
        this.avoidsSlow = avoidsSlow;
    }

    @Override
    public void believe(Set<String> nodes) {
        slow = nodes;
    }

    @Override
    public int read(Path path, byte[] into) throws IOException {
        DFSClient dfs = fs.getClient();
        try (HdfsDataInputStream in = (HdfsDataInputStream) fs.open(path)) {
            List<LocatedBlock> blocks = in.getAllBlocks();
            Copies.Found found = copies == null ? null : copies.find(file(path, blocks), slow);
            List<StewardClient.Sample> samples = Collections.synchronizedList(new ArrayList<>());
            List<Callable<Void>> reads = new ArrayList<>();
            int[] replicas = avoidsSlow ? Replicas.distinct(names(blocks), slow) : null;
            int cached = 0;
            for (int i = 0; i < blocks.size(); i++) {
                int index = i;
                LocatedBlock block = blocks.get(i);
                int start = (int) block.getStartOffset();
                int length = (int) block.getBlockSize();
                if (found != null && found.has(i)) {
                    cached++;
                    reads.add(() -> {
                        copies.read(found, index, into, start, length);
                        return null;
                    });
                    continue;
                }
                reads.add(() -> {
                    long startNs = System.nanoTime();
                    if (avoidsSlow) {
                        try (ReplicaRead replica =
                                new ReplicaRead(dfs, fs.getConf(), path.toString(), block, replicas[index])) {
                            replica.read(0, into, start, length);
                        }
                    } else {
                        in.readFully(start, into, start, length);
                    }
                    samples.add(new StewardClient.Sample(
                            block.getLocations()[0].getXferAddr(), length, System.nanoTime() - startNs, false));
                    return null;
                });
            }
            all(reads);
            if (copies != null) {
                copies.after(found, into, samples);
            }
            return cached;
        }
    }

    @Override
    public void settle() throws IOException {
        if (copies != null) {
            copies.settle();
        }
    }

    private void all(List<Callable<Void>> reads) throws IOException {
        List<Future<Void>> started = new ArrayList<>();
        reads.forEach(read -> started.add(threads.submit(read)));
        try {
            for (Future<Void> each : started) {
                each.get();
            }
        } catch (ExecutionException e) {
            throw new IOException(e.getCause());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IOException("interrupted", e);
        }
    }

    private static List<List<String>> names(List<LocatedBlock> blocks) {
        List<List<String>> names = new ArrayList<>();
        for (LocatedBlock block : blocks) {
            List<String> nodes = new ArrayList<>();
            for (DatanodeInfo node : block.getLocations()) {
                nodes.add(node.getXferAddr());
            }
            names.add(nodes);
        }
        return names;
    }

    /** As a file whose stripes have one block, so that its "parity" is the copy. Files of the lab never change. */
    private FileParity.File file(Path path, List<LocatedBlock> blocks) throws IOException {
        HdfsFileStatus status = fs.getClient().getFileInfo(path.toUri().getPath());
        List<String> nodes = new ArrayList<>();
        blocks.forEach(block -> nodes.add(block.getLocations()[0].getXferAddr()));
        return new FileParity.File(
                path.toString(), status.getFileId(), 1, status.getLen(), false, status.getBlockSize(), 1, nodes);
    }
}
