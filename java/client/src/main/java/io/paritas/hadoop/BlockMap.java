package io.paritas.hadoop;

import io.paritas.files.FileParity;
import io.paritas.files.FileVersion;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.HdfsLocatedFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;

/** A file's blocks, and the identity of its bytes, from one call of the NameNode. */
final class BlockMap {
    /** A steward has limits too; a larger file is read without parity. */
    private static final int BLOCKS_MAX = 65_536;

    final LocatedBlocks located;
    final FileParity.File file;

    private BlockMap(LocatedBlocks located, FileParity.File file) {
        this.located = located;
        this.file = file;
    }

    /** Null if the file is not one of plain whole blocks, or not the one that was opened: `firstBlock` tells. */
    static BlockMap of(DFSClient client, String path, long length, LocatedBlock firstBlock, int k) throws IOException {
        HdfsLocatedFileStatus status = client.getLocatedFileInfo(path, true);
        if (status == null || status.isDirectory() || status.getLen() != length) {
            return null;
        }
        LocatedBlocks located = status.getLocatedBlocks();
        List<LocatedBlock> blocks = located.getLocatedBlocks();
        if (located.isUnderConstruction()
                || !located.isLastBlockComplete()
                || located.getErasureCodingPolicy() != null
                || located.getFileEncryptionInfo() != null
                || blocks.isEmpty()
                || blocks.size() > BLOCKS_MAX
                || !blocks.get(0).getBlock().equals(firstBlock.getBlock())) {
            return null;
        }
        long blockBytes = blocks.get(0).getBlockSize();
        List<String> nodes = new ArrayList<>();
        for (int i = 0; i < blocks.size(); i++) {
            LocatedBlock block = blocks.get(i);
            boolean isLast = i == blocks.size() - 1;
            boolean fits = block.getStartOffset() == i * blockBytes
                    && (isLast ? block.getBlockSize() <= blockBytes : block.getBlockSize() == blockBytes);
            if (!fits || block.isCorrupt() || block.getLocations().length == 0) {
                return null;
            }
            DatanodeInfo nearest = block.getLocations()[0];
            nodes.add(nearest.getXferAddr());
        }
        ExtendedBlock last = blocks.get(blocks.size() - 1).getBlock();
        long version = FileVersion.of(
                status.getFileId(), length, status.getModificationTime(), last.getBlockId(), last.getGenerationStamp());
        return new BlockMap(
                located, new FileParity.File(path, status.getFileId(), version, length, blockBytes, k, nodes));
    }

    /** Lengths of the blocks of a stripe. */
    long[] laneBytes(long stripe) {
        long first = stripe * file.k;
        int count = (int) Math.min(file.k, located.locatedBlockCount() - first);
        long[] bytes = new long[count];
        for (int lane = 0; lane < count; lane++) {
            bytes[lane] = located.get((int) first + lane).getBlockSize();
        }
        return bytes;
    }

    /** A copy that a stream of Hadoop's may change. */
    LocatedBlocks copy() {
        return new LocatedBlocks(
                located.getFileLength(), false, new ArrayList<>(located.getLocatedBlocks()), located.getLastLocatedBlock(),
                true, null, null);
    }
}
