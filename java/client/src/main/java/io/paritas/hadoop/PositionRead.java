package io.paritas.hadoop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.hdfs.DFSInputStream;

/** A read by position that is under way: ranges that each are within one block or cell, all asked for at once. */
final class PositionRead {
    /** Within one range others are late or not; a range is the piece that is reconstructed. */
    private static final int RANGE_BYTES_MAX = 4 << 20;

    private final DFSInputStream store;
    private final long from;
    private final int count;
    private final List<HdfsStripe> ranges = new ArrayList<>();
    private final List<Integer> lengths = new ArrayList<>();
    private int stopped;

    private PositionRead(DFSInputStream store, long from, int count) {
        this.store = store;
        this.from = from;
        this.count = count;
    }

    /** Null if there is no memory for it. */
    static PositionRead start(HdfsStripe.File file, DFSInputStream store, long from, int count) {
        PositionRead read = new PositionRead(store, from, count);
        for (long at = from; at < from + count; ) {
            int length = (int) Math.min(Math.min(from + count, file.map.laneEnd(at)) - at, RANGE_BYTES_MAX);
            HdfsStripe range = HdfsStripe.range(file, at, length);
            if (range == null) {
                read.stop();
                return null;
            }
            read.ranges.add(range);
            read.lengths.add(length);
            at += length;
        }
        return read;
    }

    /** Waits for all bytes. Returns their number. */
    int finish(byte[] into, int at) throws IOException {
        try {
            int done = 0;
            for (int i = 0; i < ranges.size(); i++) {
                if (!ranges.get(i).readRange(into, at + done)) {
                    // The parity can't stand for it: Hadoop's stream gives the bytes or its error.
                    store.readFully(from + done, into, at + done, lengths.get(i));
                }
                done += lengths.get(i);
                ranges.get(i).stop();
                stopped++;
            }
            return done;
        } finally {
            stop();
        }
    }

    int finish(ByteBuffer into) throws IOException {
        if (into.hasArray() && !into.isReadOnly()) {
            int done = finish(into.array(), into.arrayOffset() + into.position());
            into.position(into.position() + done);
            return done;
        }
        byte[] copy = new byte[count];
        finish(copy, 0);
        into.put(copy);
        return count;
    }

    /** Its reader has gone. */
    void stop() {
        while (stopped < ranges.size()) {
            ranges.get(stopped++).stop();
        }
    }
}
