package io.paritas.lab;

import io.paritas.hadoop.ParitasHdfs;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;

/**
 * Writes files of an HDFS as told on standard input, with the bytes that {@link Reads} compares with. Arguments are as there.
 *
 * <pre>
 * begin MODE PATH BYTES BLOCK SEED   creates a file, writes so many bytes, and leaves it open. A sixth word says how it is
 *                                    created: `create`, `builder`, `builder:POLICY` (the erasure-coding policy), `context`.
 *                                    `append` opens a file to append to it, by a flag of FileContext
 * more BYTES                         writes on
 * flush                              hflush and hsync
 * end-block                          hsync that ends the current block
 * end                                closes it
 * write MODE PATH BYTES BLOCK SEED   all of that
 * leave                              the JVM ends, by System.exit, with nothing closed
 * rename MODE PATH TO
 * close MODE                         closes the mode's file system, as at the end of a program, and makes a new one
 * counters MODE
 * </pre>
 *
 * The answer is `ok NANOSECONDS`, or `error TEXT`.
 */
public final class Writes {
    private static final int BUFFER_BYTES = 128 << 10;

    private final URI uri;
    private final Map<String, Configuration> settings = new HashMap<>();
    private final Map<String, FileSystem> modes = new HashMap<>();
    private FSDataOutputStream out;
    private long seed;

    private Writes(URI uri) {
        this.uri = uri;
    }

    public static void main(String[] arguments) throws Exception {
        URI uri = null;
        Map<String, String> shared = new HashMap<>();
        Map<String, String> named = new HashMap<>();
        for (int i = 0; i < arguments.length; i++) {
            if (arguments[i].equals("--fs")) {
                uri = URI.create(arguments[++i]);
            } else if (arguments[i].equals("--conf")) {
                Reads.put(shared, arguments[++i]);
            } else {
                int colon = arguments[i].indexOf(':');
                named.put(arguments[i].substring(0, colon), arguments[i].substring(colon + 1));
            }
        }
        Writes writes = new Writes(uri);
        for (Map.Entry<String, String> mode : named.entrySet()) {
            Map<String, String> all = new HashMap<>(shared);
            for (String setting : mode.getValue().split(";")) {
                if (!setting.isEmpty()) {
                    Reads.put(all, setting);
                }
            }
            Configuration conf = new Configuration();
            all.forEach(conf::set);
            writes.settings.put(mode.getKey(), conf);
            writes.modes.put(mode.getKey(), FileSystem.newInstance(uri, conf));
        }
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                long start = System.nanoTime();
                String text = writes.run(line.trim().split(" +"));
                answer = text != null ? text : "ok " + (System.nanoTime() - start);
            } catch (IOException | RuntimeException e) {
                answer = "error " + e.toString().replace('\n', ' ');
            }
            System.out.println(answer);
        }
        // As a process that ends without closing anything.
        Runtime.getRuntime().halt(0);
    }

    /** Null: only the time is of interest. */
    private String run(String[] words) throws IOException {
        switch (words[0]) {
            case "begin":
                begin(words);
                return null;
            case "more":
                more(Long.parseLong(words[1]));
                return null;
            case "flush":
                out.hflush();
                out.hsync();
                return null;
            case "end-block":
                ((HdfsDataOutputStream) out).hsync(EnumSet.of(HdfsDataOutputStream.SyncFlag.END_BLOCK));
                return null;
            case "leave":
                System.exit(0);
                return null;
            case "end":
                out.close();
                return null;
            case "write":
                begin(words);
                out.close();
                return null;
            case "rename":
                return mode(words[1]).rename(new Path(words[2]), new Path(words[3])) ? null : "error not renamed";
            case "close":
                mode(words[1]).close();
                modes.put(words[1], FileSystem.newInstance(uri, settings.get(words[1])));
                return null;
            case "counters":
                FileSystem mode = mode(words[1]);
                return "ok " + (mode instanceof ParitasHdfs ? ((ParitasHdfs) mode).counters() : "");
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

    private void begin(String[] words) throws IOException {
        seed = Long.parseLong(words[5]);
        out = create(words[1], words.length > 6 ? words[6] : "create", new Path(words[2]), Long.parseLong(words[4]));
        more(Long.parseLong(words[3]));
    }

    private FSDataOutputStream create(String mode, String how, Path path, long blockBytes) throws IOException {
        if (how.equals("append")) {
            return FileContext.getFileContext(uri, settings.get(mode)).create(path, EnumSet.of(CreateFlag.APPEND));
        }
        if (how.equals("context")) {
            return FileContext.getFileContext(uri, settings.get(mode)).create(
                    path, EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE), Options.CreateOpts.blockSize(blockBytes),
                    Options.CreateOpts.repFac((short) 1), Options.CreateOpts.createParent());
        }
        if (!how.startsWith("builder")) {
            return mode(mode).create(path, true, BUFFER_BYTES, (short) 1, blockBytes);
        }
        DistributedFileSystem.HdfsDataOutputStreamBuilder builder = ((DistributedFileSystem) mode(mode)).createFile(path)
                .overwrite(true).recursive().replication((short) 1).blockSize(blockBytes);
        int colon = how.indexOf(':');
        return (colon < 0 ? builder : builder.ecPolicyName(how.substring(colon + 1))).build();
    }

    private void more(long bytes) throws IOException {
        Reads.fill(out, seed, out.getPos(), out.getPos() + bytes);
    }
}
