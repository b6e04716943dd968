package io.paritas.hadoop;

import io.paritas.files.FileParity;
import io.paritas.files.FileVersion;
import io.paritas.files.FilesClient;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.DatanodeInfoWithStorage;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.ExtendedBlock;
import org.apache.hadoop.hdfs.protocol.HdfsLocatedFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedBlocks;
import org.apache.hadoop.hdfs.protocol.LocatedStripedBlock;
import org.apache.hadoop.hdfs.util.StripedBlockUtil;

/**
 * Where a file's bytes are, and their identity, from one call of the NameNode.
 *
 * <p>A stripe of a contiguous file is k blocks in a row. A stripe of a file with an erasure-coding policy is a block group,
 * whose cells go over k internal blocks in turn. A lane is a block or an internal block.
 */
final class BlockMap {
    /** A steward has limits too; a larger file is read without parity. */
    private static final int BLOCKS_MAX = 65_536;
    /** The length of a file of which nothing is known yet. */
    static final long ANY_LENGTH = -1;

    final LocatedBlocks located;
    final FileParity.File file;
    final boolean isStriped;
    private final int cellBytes;
    private final int storeParity;

    private BlockMap(LocatedBlocks located, FileParity.File file, ErasureCodingPolicy policy) {
        this.located = located;
        this.file = file;
        isStriped = policy != null;
        cellBytes = isStriped ? policy.getCellSize() : 0;
        storeParity = isStriped ? policy.getNumParityUnits() : 0;
    }

    /**
     * Null if the file is not one of usual blocks, or not the one that was opened: `firstBlock` tells, unless it is null. `k` is
     * for contiguous files.
     */
    static BlockMap of(DFSClient client, String path, long length, LocatedBlock firstBlock, int k, int subBytes)
            throws IOException {
        HdfsLocatedFileStatus status = client.getLocatedFileInfo(path, true);
        if (status == null || status.isDirectory() || length != ANY_LENGTH && length != status.getLen()) {
            return null;
        }
        LocatedBlocks located = status.getLocatedBlocks();
        List<LocatedBlock> blocks = located.getLocatedBlocks();
        if (located.isUnderConstruction()
                || !located.isLastBlockComplete()
                || located.getFileEncryptionInfo() != null
                || blocks.isEmpty()
                || blocks.size() > BLOCKS_MAX
                || firstBlock != null && !blocks.get(0).getBlock().equals(firstBlock.getBlock())) {
            return null;
        }
        ErasureCodingPolicy policy = located.getErasureCodingPolicy();
        // A subblock of striped parity is a row of cells, and the buffers have the size of a subblock.
        if (policy != null && policy.getCellSize() != subBytes) {
            return null;
        }
        long unitBytes = policy == null
                ? contiguousBytes(status, blocks) : status.getBlockSize() * policy.getNumDataUnits();
        for (int i = 0; i < blocks.size(); i++) {
            LocatedBlock block = blocks.get(i);
            boolean isLast = i == blocks.size() - 1;
            boolean fits = block.getStartOffset() == i * unitBytes
                    && (isLast ? block.getBlockSize() <= unitBytes : block.getBlockSize() == unitBytes);
            boolean isKnown = policy == null
                    ? !(block instanceof LocatedStripedBlock) && block.getLocations().length > 0
                    : block instanceof LocatedStripedBlock;
            if (!fits || !isKnown || block.isCorrupt()) {
                return null;
            }
        }
        ExtendedBlock last = blocks.get(blocks.size() - 1).getBlock();
        long version = FileVersion.of(
                status.getFileId(), status.getLen(), status.getModificationTime(), last.getBlockId(), last.getGenerationStamp());
        int units = policy == null ? k : policy.getNumDataUnits();
        long blockBytes = policy == null ? unitBytes : status.getBlockSize();
        FileParity.File file = new FileParity.File(
                path, status.getFileId(), version, status.getLen(), policy != null, blockBytes, units,
                policy == null ? nodes(blocks) : nodes(blocks, policy));
        return new BlockMap(located, file, policy);
    }

    /** Block size of a contiguous file. For a file of one block it is the nominal size, which its writer used too. */
    private static long contiguousBytes(HdfsLocatedFileStatus status, List<LocatedBlock> blocks) {
        long first = blocks.get(0).getBlockSize();
        return blocks.size() == 1 ? Math.max(first, status.getBlockSize()) : first;
    }

    ExtendedBlock lastBlock() {
        return located.get(located.locatedBlockCount() - 1).getBlock();
    }

    private static List<String> nodes(List<LocatedBlock> blocks) {
        List<String> nodes = new ArrayList<>();
        blocks.forEach(block -> nodes.add(block.getLocations()[0].getXferAddr()));
        return nodes;
    }

    private static List<String> nodes(List<LocatedBlock> groups, ErasureCodingPolicy policy) {
        List<String> nodes = new ArrayList<>();
        for (LocatedBlock group : groups) {
            LocatedBlock[] internal = StripedBlockUtil.parseStripedBlockGroup(
                    (LocatedStripedBlock) group, policy.getCellSize(), policy.getNumDataUnits(), policy.getNumParityUnits());
            for (int lane = 0; lane < policy.getNumDataUnits(); lane++) {
                if (internal[lane] != null && internal[lane].getLocations().length > 0) {
                    nodes.add(internal[lane].getLocations()[0].getXferAddr());
                }
            }
        }
        return nodes;
    }

    long stripeBytes() {
        return file.blockBytes * file.k;
    }

    /** Lengths of the data lanes of a stripe. */
    long[] laneBytes(long stripe) {
        if (isStriped) {
            long[] bytes = new long[file.k];
            long group = located.get((int) stripe).getBlockSize();
            for (int lane = 0; lane < file.k; lane++) {
                bytes[lane] = StripedBlockUtil.getInternalBlockLength(group, cellBytes, file.k, lane);
            }
            return bytes;
        }
        long first = stripe * file.k;
        int count = (int) Math.min(file.k, located.locatedBlockCount() - first);
        long[] bytes = new long[count];
        for (int lane = 0; lane < count; lane++) {
            bytes[lane] = located.get((int) first + lane).getBlockSize();
        }
        return bytes;
    }

    /** The lane of a place in a stripe. */
    int lane(long inStripe) {
        return (int) (isStriped ? inStripe / cellBytes % file.k : inStripe / file.blockBytes);
    }

    /** The same place as an offset in its lane. */
    long laneOffset(long inStripe) {
        return isStriped
                ? inStripe / cellBytes / file.k * cellBytes + inStripe % cellBytes
                : inStripe % file.blockBytes;
    }

    /** Where the piece of the lane ends that this position of the file is in. */
    long pieceEnd(long position, int pieceBytes) {
        long inStripe = position % stripeBytes();
        long inPiece = laneOffset(inStripe) % pieceBytes;
        return Math.min(position + pieceBytes - inPiece, laneEnd(position));
    }

    /** The node that a data lane is read from: one that is not slow if any has it. Null if it is not known. */
    String readNode(long stripe, int lane, FilesClient client) {
        if (isStriped) {
            LocatedBlock block = internalBlock(stripe, lane);
            return block == null ? null : block.getLocations()[0].getXferAddr();
        }
        LocatedBlock block = located.get((int) (stripe * file.k) + lane);
        for (DatanodeInfo node : block.getLocations()) {
            if (!client.isSlow(node.getXferAddr())) {
                return node.getXferAddr();
            }
        }
        return block.getLocations()[0].getXferAddr();
    }

    /** Where the bytes from here on leave the lane. */
    long laneEnd(long position) {
        long piece = isStriped ? cellBytes : file.blockBytes;
        return (position / piece + 1) * piece;
    }

    /** An internal block of a group; null if no DataNode is known to have it. */
    LocatedBlock internalBlock(long stripe, int lane) {
        LocatedBlock[] internal = StripedBlockUtil.parseStripedBlockGroup(
                (LocatedStripedBlock) located.get((int) stripe), cellBytes, file.k, storeParity);
        LocatedBlock block = internal[lane];
        return block == null || block.getLocations().length == 0 ? null : block;
    }

    /** A copy that a stream of Hadoop's may change. It reads this block from nodes that are not slow, if any has it. */
    LocatedBlocks copy(int block, FilesClient client) {
        List<LocatedBlock> blocks = new ArrayList<>(located.getLocatedBlocks());
        LocatedBlock own = blocks.get(block);
        List<DatanodeInfoWithStorage> nodes = new ArrayList<>();
        int fast = 0;
        for (DatanodeInfo node : own.getLocations()) {
            nodes.add(client.isSlow(node.getXferAddr()) ? nodes.size() : fast++, (DatanodeInfoWithStorage) node);
        }
        if (fast > 0 && fast < nodes.size()) {
            LocatedBlock sorted = new LocatedBlock(
                    own.getBlock(), nodes.toArray(new DatanodeInfoWithStorage[0]), null, null, own.getStartOffset(),
                    own.isCorrupt(), own.getCachedLocations());
            sorted.setBlockToken(own.getBlockToken());
            blocks.set(block, sorted);
        }
        return new LocatedBlocks(
                located.getFileLength(), false, blocks, located.getLastLocatedBlock(), true, null, null);
    }
}
