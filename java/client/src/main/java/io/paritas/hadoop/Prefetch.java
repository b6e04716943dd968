package io.paritas.hadoop;

import io.paritas.files.FileParity;
import io.paritas.files.FilesClient;
import io.paritas.files.StewardClient;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configured;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

/**
 * A worker that makes parity ahead of readers: when a DataNode becomes slow, the steward names files that it holds a part of,
 * those first that were read last. Several may run; each file is given to one. When there is nothing to make it looks for files
 * that have parity and that nobody has seen for long, and tells the steward which are gone.
 *
 * <p>A process of its own: `hadoop jar paritas-hadoop.jar io.paritas.hadoop.Prefetch [hdfs://NAMENODE]`. It needs the right to
 * read the files. It reads `fs.paritas.prefetch.rate` bytes a second on average: it pauses after each stripe.
 */
public final class Prefetch extends Configured implements Tool {
    private static final long POLL_MS = 500;
    private static final int BUFFER_BYTES = 1 << 20;

    private final byte[] buffer = new byte[BUFFER_BYTES];

    public static void main(String[] arguments) throws Exception {
        System.exit(ToolRunner.run(new Prefetch(), arguments));
    }

    @Override
    public int run(String[] arguments) throws Exception {
        URI uri = arguments.length > 0 ? URI.create(arguments[0]) : FileSystem.getDefaultUri(getConf());
        try (ParitasHdfs hdfs = new ParitasHdfs()) {
            hdfs.initialize(uri, getConf());
            FilesClient client = hdfs.client();
            if (client == null || !client.isConfigured()) {
                System.err.println("prefetch: set fs.paritas.steward and fs.paritas.cache, and leave fs.paritas.enabled true");
                return 1;
            }
            System.out.println("ready");
            while (true) {
                long id = 0;
                try {
                    id = client.steward.next();
                } catch (IOException e) {
                    // It is away, or another one is about to lead.
                }
                if (id == 0) {
                    check(hdfs, client);
                    Thread.sleep(POLL_MS);
                    continue;
                }
                long start = System.nanoTime();
                String outcome;
                try {
                    outcome = make(hdfs, client, "/.reserved/.inodes/" + id);
                } catch (IOException e) {
                    // Deleted meanwhile, or not this user's to read.
                    outcome = e.toString();
                }
                long ms = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
                System.out.println("inode " + id + ": " + outcome.replace('\n', ' ') + ", " + ms + " ms");
            }
        }
    }

    /** Looks for one file that nobody has seen for long. If it is gone, the steward is told. */
    private static void check(ParitasHdfs hdfs, FilesClient client) {
        try {
            long id = client.steward.check();
            if (id != 0 && isGone(hdfs, id)) {
                client.steward.deleted(id);
                System.out.println("inode " + id + ": deleted");
            }
        } catch (IOException e) {
            // Steward or NameNode is away, or the file is not this user's to see.
        }
    }

    private static boolean isGone(ParitasHdfs hdfs, long id) throws IOException {
        try {
            return hdfs.getClient().getFileInfo("/.reserved/.inodes/" + id) == null;
        } catch (FileNotFoundException e) {
            return true;
        }
    }

    private String make(ParitasHdfs hdfs, FilesClient client, String path) throws IOException, InterruptedException {
        ParitasHdfs.Settings settings = hdfs.settings();
        BlockMap map = BlockMap.of(
                hdfs.getClient(), path, BlockMap.ANY_LENGTH, null, settings.k, settings.shared.subBytes);
        if (map == null) {
            return "deleted, being written, or of unusual blocks";
        }
        FileParity parity = new FileParity(client, map.file, true);
        HdfsStripe.File file = new HdfsStripe.File(hdfs.getClient(), getConf(), hdfs.statistics(), client, map, parity);
        try {
            if (parity.grant().decision != StewardClient.Decision.SHOULD_CACHE) {
                return "no longer wanted";
            }
            for (long begin = 0; begin < map.file.length; begin += map.stripeBytes()) {
                long start = System.nanoTime();
                HdfsStripe stripe = HdfsStripe.start(file, begin / map.stripeBytes(), true);
                if (stripe == null || !stripe.isAllWanted()) {
                    if (stripe != null) {
                        stripe.stop();
                    }
                    return "no memory: raise fs.paritas.read.memory";
                }
                long bytes = stripe.endOffset() - begin;
                try {
                    if (!read(stripe, begin)) {
                        return "a DataNode could not give its block";
                    }
                } finally {
                    stripe.stop();
                }
                long dueNs = start + (long) (bytes * 1e9 / settings.prefetchBytesPerSecond);
                TimeUnit.NANOSECONDS.sleep(dueNs - System.nanoTime());
            }
        } finally {
            // It commits when all parity is in the cache, which is sent by other threads; else it drops.
            parity.close();
        }
        return "made parity of " + map.file.length + " bytes";
    }

    /** Waits for all data of a stripe. False if some can't be had. */
    private boolean read(HdfsStripe stripe, long begin) throws IOException {
        for (long position = begin; position < stripe.endOffset(); ) {
            int done = stripe.read(position, buffer, 0, (int) Math.min(buffer.length, stripe.endOffset() - position));
            if (done < 0) {
                return false;
            }
            position += done;
        }
        return true;
    }
}
