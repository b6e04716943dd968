package io.paritas.hadoop;

import io.paritas.files.Crc32c;
import io.paritas.files.FilesClient;
import io.paritas.files.StripeReader;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.zip.CRC32;
import org.apache.hadoop.hdfs.DFSClient;
import org.apache.hadoop.hdfs.protocol.BlockChecksumOptions;
import org.apache.hadoop.hdfs.protocol.BlockChecksumType;
import org.apache.hadoop.hdfs.protocol.DatanodeInfo;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.datatransfer.IOStreamPair;
import org.apache.hadoop.hdfs.protocol.datatransfer.Sender;
import org.apache.hadoop.hdfs.protocol.proto.DataTransferProtos.BlockOpResponseProto;
import org.apache.hadoop.hdfs.protocol.proto.DataTransferProtos.OpBlockChecksumResponseProto;
import org.apache.hadoop.hdfs.protocol.proto.DataTransferProtos.Status;
import org.apache.hadoop.hdfs.protocol.proto.HdfsProtos.ChecksumTypeProto;
import org.apache.hadoop.hdfs.protocolPB.PBHelperClient;
import org.apache.hadoop.security.token.Token;

/**
 * HDFS's own checksums of one block, one for each subblock: what was decoded is compared with them. A DataNode composes them
 * of the checksums that it keeps beside the block, and sends four bytes for each subblock: 512 for a block of 128 MiB. Any
 * replica will do.
 */
final class BlockSums {
    /** Not public, but the same in all versions that we support. Without it nothing can be compared. */
    private static final Method CONNECT = connectMethod();
    /** A DataNode that is only slow has answered by then. What is decoded before its answer is delivered all the same. */
    private static final long WAIT_MS = 100;

    private static final class Sums {
        final boolean isCastagnoli;
        final ByteBuffer each;

        Sums(boolean isCastagnoli, byte[] each) {
            this.isCastagnoli = isCastagnoli;
            this.each = ByteBuffer.wrap(each);
        }

        boolean isOf(int sub, byte[] bytes, int length) {
            int sum;
            if (isCastagnoli) {
                sum = Crc32c.of(bytes, length);
            } else {
                CRC32 crc = new CRC32();
                crc.update(bytes, 0, length);
                sum = (int) crc.getValue();
            }
            return each.getInt(sub * Integer.BYTES) == sum;
        }
    }

    private final FutureTask<Sums> asked;
    /** Its answer was waited for, as long as it may be. */
    private volatile boolean isLate;

    /** Asks in another thread. */
    BlockSums(DFSClient dfs, FilesClient client, LocatedBlock block) {
        asked = new FutureTask<>(() -> ask(dfs, client, block));
        try {
            client.lanes().execute(asked);
        } catch (RejectedExecutionException | OutOfMemoryError e) {
            // No thread: nothing is compared.
            asked.cancel(false);
        }
    }

    StripeReader.Verdict check(int sub, byte[] bytes, int length) {
        try {
            Sums sums = asked.get(isLate ? 0 : WAIT_MS, TimeUnit.MILLISECONDS);
            return sums.isOf(sub, bytes, length) ? StripeReader.Verdict.RIGHT : StripeReader.Verdict.WRONG;
        } catch (TimeoutException e) {
            isLate = true;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (ExecutionException | RuntimeException e) {
            // No DataNode has told, or there was no thread to ask.
        }
        return StripeReader.Verdict.UNKNOWN;
    }

    private static Sums ask(DFSClient dfs, FilesClient client, LocatedBlock block) throws IOException {
        List<DatanodeInfo> nodes = new ArrayList<>();
        for (DatanodeInfo node : block.getLocations()) {
            // The last one that is not slow first: the lane asks for the first.
            nodes.add(client.isSlow(node.getXferAddr()) ? nodes.size() : 0, node);
        }
        IOException last = new IOException("no DataNode has " + block.getBlock());
        for (DatanodeInfo node : nodes) {
            try {
                return ask(dfs, client, block, node);
            } catch (IOException | RuntimeException e) {
                last = new IOException(node + " does not tell the checksums of " + block.getBlock(), e);
            }
        }
        throw last;
    }

    private static Sums ask(DFSClient dfs, FilesClient client, LocatedBlock block, DatanodeInfo node) throws IOException {
        int subBytes = client.settings.subBytes;
        try (IOStreamPair pair = connect(dfs, node, client.settings.timeoutMs, block)) {
            new Sender(new java.io.DataOutputStream(pair.out)).blockChecksum(block.getBlock(), block.getBlockToken(),
                    new BlockChecksumOptions(BlockChecksumType.COMPOSITE_CRC, subBytes));
            BlockOpResponseProto reply = BlockOpResponseProto.parseFrom(PBHelperClient.vintPrefixed(pair.in));
            if (reply.getStatus() != Status.SUCCESS) {
                throw new IOException(node + " answers " + reply.getStatus());
            }
            OpBlockChecksumResponseProto sums = reply.getChecksumResponse();
            byte[] each = sums.getBlockChecksum().toByteArray();
            ChecksumTypeProto type = sums.getCrcType();
            long subs = (block.getBlockSize() + subBytes - 1) / subBytes;
            boolean isKnown = type == ChecksumTypeProto.CHECKSUM_CRC32C || type == ChecksumTypeProto.CHECKSUM_CRC32;
            if (!isKnown || each.length != subs * Integer.BYTES) {
                throw new IOException(node + " answers with " + each.length + " bytes of type " + type);
            }
            return new Sums(type == ChecksumTypeProto.CHECKSUM_CRC32C, each);
        }
    }

    private static IOStreamPair connect(DFSClient dfs, DatanodeInfo node, int timeoutMs, LocatedBlock block)
            throws IOException {
        if (CONNECT == null) {
            throw new IOException("this version of Hadoop has another way to connect");
        }
        try {
            return (IOStreamPair) CONNECT.invoke(dfs, node, timeoutMs, block.getBlockToken());
        } catch (InvocationTargetException e) {
            throw new IOException(e.getCause());
        } catch (ReflectiveOperationException e) {
            throw new IOException(e);
        }
    }

    private static Method connectMethod() {
        try {
            Method found = DFSClient.class.getDeclaredMethod("connectToDN", DatanodeInfo.class, int.class, Token.class);
            found.setAccessible(true);
            return found;
        } catch (ReflectiveOperationException | RuntimeException e) {
            return null;
        }
    }
}
