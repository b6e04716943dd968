package io.paritas.lab;

import io.paritas.files.ParityValue;
import io.paritas.files.RespPool;
import io.paritas.hadoop.ParitasHdfs;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.AddErasureCodingPolicyResponse;
import org.apache.hadoop.hdfs.protocol.ErasureCodingPolicy;
import org.apache.hadoop.hdfs.protocol.HdfsLocatedFileStatus;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.hdfs.protocol.LocatedStripedBlock;
import org.apache.hadoop.hdfs.util.StripedBlockUtil;
import org.apache.hadoop.io.erasurecode.ECSchema;

/**
 * Writes and reads files of an HDFS as told on standard input, one command a line, one answer a line.
 *
 * <pre>
 * write PATH BYTES BLOCK SEED NODE...   a file of seeded bytes; block i on the DataNode NODE i (host:port), if named.
 *                                       Replicas: several of them, joined by commas
 * whole MODE PATH SEED                  reads the whole file by the mode's system, see {@link WholeRead}. The third number of
 *                                       the answer is how many blocks came from the cache
 * settle MODE                           waits for what goes on after such reads
 * put PATH SOURCE BLOCK NODE...         copies a file of any file system; NODEs as with write
 * drain MODE PATH                       reads the whole file and drops it
 * drain-at MODE PATH COUNT              the same by position, so many bytes at a time
 * digest DIRECTORY                      the SHA-256 of a job's output
 * delete-all PATH                       with all that is below
 * range MODE PATH SEED FROM COUNT       one read by position of a stream that is open already
 * value HOST:PORT COUNT                 writes a value of so many bytes to the cache, and times a read of it
 * believe MODE NODE...                  these nodes are to be taken for slow ones
 * xor-policy PATH K                     as policy, with the policy XOR-K-1-1024k, which it makes
 * units PATH                            the DataNodes of each block group's units, in order, joined by commas
 * read MODE PATH SEED[,SEED]            reads the whole file and compares it with the seed's bytes (those of one of them)
 * part MODE PATH SEED FROM COUNT        seeks, reads that many bytes, compares, closes
 * pread MODE PATH SEED FROM COUNT       the same by position
 * preads MODE PATH SEED COUNT STEP [HOW [FROM END]]
 *                                       reads COUNT bytes by position at 0, STEP, 2 STEP and so on, of one stream; HOW is bytes,
 *                                       buffer (a direct ByteBuffer) or vectored (one readVectored for all). FROM and END: within
 * buffer MODE PATH SEED                 reads the whole file into direct ByteBuffers
 * context MODE PATH SEED                reads the whole file through FileContext
 * slow MODE PATH SEED BYTES MS          reads the whole file, and waits MS after each so many BYTES
 * policy PATH NAME                      makes a directory whose files have this erasure-coding policy
 * append PATH BYTES SEED                the bytes that the seed has after the file's end
 * recover PATH                          ends the lease of a file's writer. `ok true` when the file is closed
 * delete PATH
 * truncate PATH BYTES                   `ok true` when it is done at once
 * locations PATH                        the DataNodes of each block, those of one block joined by commas
 * id PATH                               the number of its inode
 * counters MODE
 * statistics MODE                       bytes that Hadoop has counted for the mode's class: in the thread that reads, in all,
 *                                       and of files with an erasure-coding policy
 * </pre>
 *
 * MODE is a name given on the command line with its settings: `MODE:key=value,key=value`. All modes share the rest:
 * `--fs URI --conf key=value`. The answer to a read is `ok NANOSECONDS BYTES`, to a failure `error TEXT`.
 */
public final class Reads {
    static final int BUFFER_BYTES = 128 << 10;
    private static final int CHUNK_BYTES = 1 << 16;
    private static final int XOR_CELL_BYTES = 1 << 20;

    private final URI uri;
    private final Map<String, FileSystem> modes = new HashMap<>();
    private final Map<String, WholeRead> systems = new HashMap<>();
    private final byte[] buffer = new byte[BUFFER_BYTES];

    private Reads(URI uri) {
        this.uri = uri;
    }

    public static void main(String[] arguments) throws Exception {
        URI uri = null;
        Map<String, String> shared = new HashMap<>();
        Map<String, String> modes = new HashMap<>();
        for (int i = 0; i < arguments.length; i++) {
            if (arguments[i].equals("--fs")) {
                uri = URI.create(arguments[++i]);
            } else if (arguments[i].equals("--conf")) {
                put(shared, arguments[++i]);
            } else {
                int colon = arguments[i].indexOf(':');
                modes.put(arguments[i].substring(0, colon), arguments[i].substring(colon + 1));
            }
        }
        Reads reads = new Reads(uri);
        for (Map.Entry<String, String> mode : modes.entrySet()) {
            Map<String, String> settings = new HashMap<>(shared);
            for (String setting : mode.getValue().split(";")) {
                if (!setting.isEmpty()) {
                    put(settings, setting);
                }
            }
            Configuration conf = new Configuration();
            settings.forEach(conf::set);
            FileSystem fs = FileSystem.newInstance(uri, conf);
            reads.modes.put(mode.getKey(), fs);
            reads.systems.put(mode.getKey(), WholeRead.of(fs, conf));
        }
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = reads.run(line.trim().split(" +"));
            } catch (IOException | RuntimeException e) {
                answer = "error " + e.toString().replace('\n', ' ');
            }
            System.out.println(answer);
        }
        System.exit(0);
    }

    static void put(Map<String, String> settings, String setting) {
        int equals = setting.indexOf('=');
        settings.put(setting.substring(0, equals), setting.substring(equals + 1));
    }

    /** As Spark reads them: the newer statistics do not have the count of a thread. */
    @SuppressWarnings("deprecation")
    private static String statistics(FileSystem mode) {
        FileSystem.Statistics counted = FileSystem.getStatistics("hdfs", mode.getClass());
        return counted.getThreadStatistics().getBytesRead() + " " + counted.getBytesRead() + ' '
                + counted.getBytesReadErasureCoded();
    }

    private String run(String[] words) throws IOException {
        switch (words[0]) {
            case "write":
                return write(words);
            case "read":
                return timed(words, 0, Long.MAX_VALUE, "stream");
            case "buffer":
                return timed(words, 0, Long.MAX_VALUE, "buffer");
            case "context":
                return timed(words, 0, Long.MAX_VALUE, "context");
            case "part":
                return timed(words, Long.parseLong(words[4]), Long.parseLong(words[5]), "stream");
            case "pread":
                return timed(words, Long.parseLong(words[4]), Long.parseLong(words[5]), "pread");
            case "slow":
                return slow(words);
            case "whole":
                return whole(words);
            case "put":
                Trees.put((DistributedFileSystem) any(), new Path(words[1]), new Path(words[2]), Long.parseLong(words[3]),
                        nodes(words, 4));
                return "ok";
            case "drain":
                return "ok " + Trees.drain(mode(words[1]), new Path(words[2]));
            case "drain-at":
                return drainAt(words);
            case "digest":
                return "ok " + Trees.digest(any(), new Path(words[1]));
            case "delete-all":
                return "ok " + any().delete(new Path(words[1]), true);
            case "range":
                return range(words);
            case "value":
                return value(words[1], Integer.parseInt(words[2]));
            case "settle":
                system(words[1]).settle();
                return "ok";
            case "believe":
                system(words[1]).believe(WholeRead.nodes(words, 2));
                return "ok";
            case "policy":
                policy(new Path(words[1]), words[2]);
                return "ok";
            case "xor-policy":
                ErasureCodingPolicy xor =
                        new ErasureCodingPolicy(new ECSchema("xor", Integer.parseInt(words[2]), 1), XOR_CELL_BYTES);
                for (AddErasureCodingPolicyResponse each :
                        ((DistributedFileSystem) any()).addErasureCodingPolicies(new ErasureCodingPolicy[] {xor})) {
                    if (!each.isSucceed() && !each.getErrorMsg().contains("same")) {
                        return "error " + each.getErrorMsg();
                    }
                }
                policy(new Path(words[1]), xor.getName());
                return "ok";
            case "units":
                return units(words[1]);
            case "preads":
                return preads(words);
            case "append":
                Path appended = new Path(words[1]);
                long end = any().getFileStatus(appended).getLen();
                try (FSDataOutputStream out = any().append(appended)) {
                    fill(out, Long.parseLong(words[3]), end, end + Long.parseLong(words[2]));
                }
                return "ok";
            case "recover":
                return "ok " + ((DistributedFileSystem) any()).recoverLease(new Path(words[1]));
            case "id":
                DistributedFileSystem ids = (DistributedFileSystem) any();
                return "ok " + ids.getClient().getFileInfo(words[1]).getFileId();
            case "delete":
                return "ok " + any().delete(new Path(words[1]), false);
            case "truncate":
                return "ok " + any().truncate(new Path(words[1]), Long.parseLong(words[2]));
            case "locations":
                return locations(words[1]);
            case "counters":
                FileSystem mode = mode(words[1]);
                return "ok " + (mode instanceof ParitasHdfs ? ((ParitasHdfs) mode).counters() : "");
            case "statistics":
                return "ok " + statistics(mode(words[1]));
            default:
                return "error unknown command " + words[0];
        }
    }

    private FileSystem mode(String name) throws IOException {
        FileSystem mode = modes.get(name);
        if (mode == null) {
            throw new IOException("no mode " + name + " was named on the command line");
        }
        return mode;
    }

    private WholeRead system(String name) throws IOException {
        mode(name);
        return systems.get(name);
    }

    private void policy(Path path, String name) throws IOException {
        DistributedFileSystem hdfs = (DistributedFileSystem) any();
        hdfs.mkdirs(path);
        hdfs.enableErasureCodingPolicy(name);
        hdfs.setErasureCodingPolicy(path, name);
    }

    private String whole(String[] words) throws IOException {
        Path path = new Path(words[2]);
        byte[] all = new byte[Math.toIntExact(any().getFileStatus(path).getLen())];
        long start = System.nanoTime();
        int cached = system(words[1]).read(path, all);
        long ns = System.nanoTime() - start;
        boolean same = compare(all, all.length, Long.parseLong(words[3]), 0);
        return same ? "ok " + ns + ' ' + all.length + ' ' + cached : "wrong bytes";
    }

    private String range(String[] words) throws IOException {
        long from = Long.parseLong(words[4]);
        byte[] bytes = new byte[Integer.parseInt(words[5])];
        long ns;
        try (FSDataInputStream in = mode(words[1]).open(new Path(words[2]))) {
            long start = System.nanoTime();
            in.readFully(from, bytes);
            ns = System.nanoTime() - start;
        }
        return compare(bytes, bytes.length, Long.parseLong(words[3]), from) ? "ok " + ns : "wrong bytes";
    }

    private static String value(String address, int count) throws IOException {
        RespPool cache = new RespPool(address, 5000);
        byte[] header = new byte[ParityValue.HEADER_BYTES];
        byte[] bytes = new byte[count];
        cache.use(0, count, connection -> {
            connection.set("lab-value", header, bytes, count, 60);
            return null;
        });
        long start = System.nanoTime();
        int got = cache.use(0, count, connection -> connection.get("lab-value", header, bytes));
        long ns = System.nanoTime() - start;
        cache.close();
        return got == count ? "ok " + ns : "error the value has " + got + " bytes";
    }

    private String units(String path) throws IOException {
        HdfsLocatedFileStatus status = ((DistributedFileSystem) any()).getClient().getLocatedFileInfo(path, true);
        ErasureCodingPolicy policy = status.getErasureCodingPolicy();
        StringBuilder text = new StringBuilder("ok");
        for (LocatedBlock group : status.getLocatedBlocks().getLocatedBlocks()) {
            List<String> nodes = new ArrayList<>();
            for (LocatedBlock unit : StripedBlockUtil.parseStripedBlockGroup((LocatedStripedBlock) group,
                    policy.getCellSize(), policy.getNumDataUnits(), policy.getNumParityUnits())) {
                nodes.add(unit == null ? "none" : unit.getLocations()[0].getXferAddr());
            }
            text.append(' ').append(String.join(",", nodes));
        }
        return text.toString();
    }

    private FileSystem any() {
        return modes.values().iterator().next();
    }

    private String write(String[] words) throws IOException {
        Path path = new Path(words[1]);
        long bytes = Long.parseLong(words[2]);
        long block = Long.parseLong(words[3]);
        long seed = Long.parseLong(words[4]);
        InetSocketAddress[][] nodes = nodes(words, 5);
        // HDFS takes favoured nodes for a file, not for a block: the file is made of one-block files, joined.
        DistributedFileSystem hdfs = (DistributedFileSystem) any();
        if (nodes.length == 0) {
            try (FSDataOutputStream out = any().create(path, true, BUFFER_BYTES, (short) 1, block)) {
                fill(out, seed, 0, bytes);
            }
            return "ok";
        }
        int blocks = (int) ((bytes + block - 1) / block);
        Path[] rest = new Path[blocks - 1];
        for (int i = 0; i < blocks; i++) {
            Path part = i == 0 ? path : (rest[i - 1] = new Path(path + ".part" + i));
            InetSocketAddress[] wanted = nodes[i % nodes.length];
            try (FSDataOutputStream out = hdfs.create(
                    part, org.apache.hadoop.fs.permission.FsPermission.getFileDefault(), true, BUFFER_BYTES,
                    (short) wanted.length, block, null, wanted)) {
                fill(out, seed, i * block, Math.min(bytes, (i + 1) * block));
            }
        }
        if (rest.length > 0) {
            hdfs.concat(path, rest);
        }
        return "ok";
    }

    private static InetSocketAddress[][] nodes(String[] words, int from) {
        InetSocketAddress[][] nodes = new InetSocketAddress[words.length - from][];
        for (int i = 0; i < nodes.length; i++) {
            String[] replicas = words[from + i].split(",");
            nodes[i] = new InetSocketAddress[replicas.length];
            for (int j = 0; j < replicas.length; j++) {
                int colon = replicas[j].lastIndexOf(':');
                nodes[i][j] = new InetSocketAddress(
                        replicas[j].substring(0, colon), Integer.parseInt(replicas[j].substring(colon + 1)));
            }
        }
        return nodes;
    }

    static void fill(FSDataOutputStream out, long seed, long from, long end) throws IOException {
        byte[] chunk = new byte[CHUNK_BYTES];
        for (long at = from; at < end; ) {
            chunk(chunk, seed, at / CHUNK_BYTES);
            int skip = (int) (at % CHUNK_BYTES);
            int count = (int) Math.min(end - at, CHUNK_BYTES - skip);
            out.write(chunk, skip, count);
            at += count;
        }
    }

    /** The file's bytes of one chunk: cheap to make, and other for each seed and place. */
    private static void chunk(byte[] into, long seed, long index) {
        long state = new Random(seed * 1_000_003 + index).nextLong();
        for (int i = 0; i < into.length; i += 8) {
            state = state * 6364136223846793005L + 1442695040888963407L;
            for (int b = 0; b < 8; b++) {
                into[i + b] = (byte) (state >>> 8 * b);
            }
        }
    }

    private String timed(String[] words, long from, long most, String way) throws IOException {
        FileSystem fs = mode(words[1]);
        Path path = new Path(words[2]);
        long length = fs.getFileStatus(path).getLen();
        long end = Math.min(length, most > length - from ? length : from + most);
        byte[] all = new byte[Math.toIntExact(end - from)];
        long start = System.nanoTime();
        int done = 0;
        try (FSDataInputStream in = way.equals("context")
                ? FileContext.getFileContext(uri, fs.getConf()).open(path) : fs.open(path)) {
            if (way.equals("pread")) {
                in.readFully(from, all);
                done = all.length;
            } else if (way.equals("buffer")) {
                java.nio.ByteBuffer direct = java.nio.ByteBuffer.allocateDirect(BUFFER_BYTES);
                while (done < all.length) {
                    direct.clear();
                    int count = in.read(direct);
                    if (count < 0) {
                        break;
                    }
                    direct.flip();
                    direct.get(all, done, count);
                    done += count;
                }
            } else {
                in.seek(from);
                while (done < all.length) {
                    int count = in.read(all, done, Math.min(BUFFER_BYTES, all.length - done));
                    if (count < 0) {
                        break;
                    }
                    done += count;
                }
                if (end == length && in.read() != -1) {
                    return "error the stream goes on after its end";
                }
            }
        }
        long ns = System.nanoTime() - start;
        byte[] got = done == all.length ? all : Arrays.copyOf(all, done);
        for (String seed : words[3].split(",")) {
            if (compare(got, done, Long.parseLong(seed), from)) {
                return done == all.length ? "ok " + ns + ' ' + done : "too few bytes: " + done;
            }
        }
        return "wrong bytes, or too few: " + done;
    }

    private String drainAt(String[] words) throws IOException {
        Path path = new Path(words[2]);
        byte[] part = new byte[Integer.parseInt(words[3])];
        long length = mode(words[1]).getFileStatus(path).getLen();
        try (FSDataInputStream in = mode(words[1]).open(path)) {
            for (long from = 0; from + part.length <= length; from += part.length) {
                in.readFully(from, part);
            }
        }
        return "ok " + length;
    }

    private String preads(String[] words) throws IOException {
        FileSystem fs = mode(words[1]);
        Path path = new Path(words[2]);
        int count = Integer.parseInt(words[4]);
        String how = words.length > 6 ? words[6] : "bytes";
        long first = words.length > 7 ? Long.parseLong(words[7]) : 0;
        long end = words.length > 7 ? Long.parseLong(words[8]) : fs.getFileStatus(path).getLen();
        List<FileRange> ranges = new ArrayList<>();
        for (long from = first; from + count <= end; from += Long.parseLong(words[5])) {
            ranges.add(FileRange.createFileRange(from, count));
        }
        ByteBuffer direct = ByteBuffer.allocateDirect(count);
        byte[] part = new byte[count];
        long ns = 0;
        try (FSDataInputStream in = fs.open(path)) {
            long start = System.nanoTime();
            if (how.equals("vectored")) {
                in.readVectored(ranges, ByteBuffer::allocate);
                for (FileRange range : ranges) {
                    range.getData().join();
                }
            }
            for (FileRange range : ranges) {
                if (how.equals("vectored")) {
                    range.getData().join().get(part);
                } else if (how.equals("buffer")) {
                    direct.clear();
                    in.readFully(range.getOffset(), direct);
                    direct.flip();
                    direct.get(part);
                } else {
                    in.readFully(range.getOffset(), part);
                }
                ns += System.nanoTime() - start;
                if (!compare(part, count, Long.parseLong(words[3]), range.getOffset())) {
                    return "wrong bytes at " + range.getOffset();
                }
                start = System.nanoTime();
            }
        }
        return "ok " + ns + ' ' + (long) count * ranges.size();
    }

    private String slow(String[] words) throws IOException {
        FileSystem fs = mode(words[1]);
        Path path = new Path(words[2]);
        byte[] all = new byte[Math.toIntExact(fs.getFileStatus(path).getLen())];
        long step = Long.parseLong(words[4]);
        long start = System.nanoTime();
        int done = 0;
        try (FSDataInputStream in = fs.open(path)) {
            while (done < all.length) {
                int count = in.read(all, done, (int) Math.min(step, all.length - done));
                if (count < 0) {
                    break;
                }
                long before = done / step;
                done += count;
                if (done / step != before) {
                    try {
                        Thread.sleep(Long.parseLong(words[5]));
                    } catch (InterruptedException e) {
                        return "error interrupted";
                    }
                }
            }
        }
        long ns = System.nanoTime() - start;
        return compare(all, done, Long.parseLong(words[3]), 0) ? "ok " + ns + ' ' + done : "wrong bytes, or too few: " + done;
    }

    private static boolean compare(byte[] got, int count, long seed, long from) {
        if (count != got.length) {
            return false;
        }
        byte[] chunk = new byte[CHUNK_BYTES];
        long index = -1;
        for (int i = 0; i < count; i++) {
            long at = from + i;
            if (at / CHUNK_BYTES != index) {
                index = at / CHUNK_BYTES;
                chunk(chunk, seed, index);
            }
            if (got[i] != chunk[(int) (at % CHUNK_BYTES)]) {
                return false;
            }
        }
        return true;
    }

    private String locations(String path) throws IOException {
        StringBuilder text = new StringBuilder("ok");
        FileSystem fs = any();
        for (org.apache.hadoop.fs.BlockLocation each :
                fs.getFileBlockLocations(new Path(path), 0, Long.MAX_VALUE)) {
            text.append(' ').append(String.join(",", each.getNames()));
        }
        return text.toString();
    }
}
