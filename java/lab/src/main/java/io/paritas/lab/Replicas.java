package io.paritas.lab;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Which replica of each block is read, where all blocks are read at once. */
final class Replicas {
    private Replicas() {}

    /**
     * For each block the number of a replica. No two blocks share a node and none comes from a slow one, as far as the replicas
     * allow. `nodes` has the nodes of each block.
     */
    static int[] distinct(List<List<String>> nodes, Set<String> slow) {
        int[] chosen = new int[nodes.size()];
        Arrays.fill(chosen, -1);
        Map<String, Integer> users = new HashMap<>();
        for (int block = 0; block < chosen.length; block++) {
            if (!place(block, nodes, slow, chosen, users, new HashSet<>())) {
                // All its healthy nodes are taken: it shares one.
                for (int i = nodes.get(block).size() - 1; i >= 0; i--) {
                    chosen[block] = chosen[block] < 0 || !slow.contains(nodes.get(block).get(i)) ? i : chosen[block];
                }
            }
        }
        return chosen;
    }

    /** Finds a node for the block; others move if they can. */
    private static boolean place(
            int block, List<List<String>> nodes, Set<String> slow, int[] chosen, Map<String, Integer> users, Set<String> tried) {
        for (int i = 0; i < nodes.get(block).size(); i++) {
            String node = nodes.get(block).get(i);
            if (slow.contains(node) || !tried.add(node)) {
                continue;
            }
            Integer other = users.get(node);
            if (other == null || place(other, nodes, slow, chosen, users, tried)) {
                users.put(node, block);
                chosen[block] = i;
                return true;
            }
        }
        return false;
    }
}
