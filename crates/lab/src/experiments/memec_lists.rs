//! MemEC §4.2: stripe lists made by the paper's algorithm, and how evenly they load servers, compared with rotated
//! lists.

use crate::report::figure;
use crate::stage::Stage;
use crate::{Check, Experiment, Report};
use std::io;

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "memec-lists",
    figure: "MemEC §4.2",
    claim: "lists made one by one, parities on the servers with the least load, balance writes; (ours) rotation \
            balances data as well",
    exact: true,
    run,
};

/// The paper's number of lists. The next constants are its code.
const LISTS: usize = 16;
const DATA: usize = 8;
const PARITY: usize = 2;

/// The servers of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct List {
    /// Servers with parity.
    pub parity: Vec<usize>,
    /// Servers with data.
    pub data: Vec<usize>,
}

/// The paper's algorithm. Each list puts its parities on the servers with the least load, and its data on the next
/// ones; of equal servers, the smaller number comes first. Data adds 1 to a server's load; parity adds the number of
/// data chunks.
pub fn generate(servers: usize, data: usize, parity: usize, lists: usize) -> Vec<List> {
    let mut loads = vec![0; servers];
    (0..lists)
        .map(|_| {
            let mut order: Vec<usize> = (0..servers).collect();
            order.sort_by_key(|server| (loads[*server], *server));
            let list = List {
                parity: order[..parity].to_vec(),
                data: order[parity..parity + data].to_vec(),
            };
            list.parity.iter().for_each(|server| loads[*server] += data);
            list.data.iter().for_each(|server| loads[*server] += 1);
            list
        })
        .collect()
}

/// List `i` begins at server `i`, as in Paritas with as many lists as servers.
fn rotate(servers: usize, lists: usize) -> Vec<List> {
    let list = |i: usize| List {
        data: (0..DATA).map(|p| (i + p) % servers).collect(),
        parity: (DATA..DATA + PARITY).map(|p| (i + p) % servers).collect(),
    };
    (0..lists).map(list).collect()
}

struct Balance {
    /// Writes of the server with the most writes, over the mean.
    most: f64,
    /// Data lists of the server with the most data lists, over the mean.
    most_data: f64,
    without_data: usize,
}

fn balance(servers: usize, lists: &[List]) -> Balance {
    let (mut writes, mut data) = (vec![0; servers], vec![0; servers]);
    for list in lists {
        list.parity.iter().for_each(|server| writes[*server] += DATA);
        for server in &list.data {
            writes[*server] += 1;
            data[*server] += 1;
        }
    }
    let over_mean = |counts: &[usize]| {
        let most = counts.iter().max().copied().unwrap_or(0);
        (most * servers) as f64 / counts.iter().sum::<usize>() as f64
    };
    Balance {
        most: over_mean(&writes),
        most_data: over_mean(&data),
        without_data: data.iter().filter(|count| **count == 0).count(),
    }
}

fn run(_: &Stage) -> io::Result<Report> {
    let columns = [
        "servers",
        "writes: most over mean",
        "data: most over mean",
        "without data",
        "rotation: writes",
        "rotation: data",
        "rotation: without data",
    ];
    let mut report = Report {
        columns: columns.map(str::to_owned).to_vec(),
        ..Report::default()
    };
    for servers in [10, 12, 16, 20, 24, 32, 40] {
        let paper = balance(servers, &generate(servers, DATA, PARITY, LISTS));
        let many = balance(servers, &generate(servers, DATA, PARITY, LISTS * servers));
        let ours = balance(servers, &rotate(servers, servers));
        let mut row = vec![servers.to_string()];
        for found in [&paper, &ours] {
            row.extend([
                figure(found.most),
                figure(found.most_data),
                found.without_data.to_string(),
            ]);
        }
        report.rows.push(row);
        let text = format!(
            "{servers} servers, many lists: most writes of a server over the mean: even, taken as 5 % more at most"
        );
        report.checks.push(Check::at_most(text, 1.05, many.most));
        let text = format!("{servers} servers, rotation: writes and data alike on all");
        let alike = ours.most < 1.001 && ours.most_data < 1.001 && ours.without_data == 0;
        report.checks.push(Check::claim(text, alike).own());
        report.remarks.push(format!(
            "{servers} servers and {} lists: most data over the mean {}, {} servers without data.",
            LISTS * servers,
            figure(many.most_data),
            many.without_data
        ));
    }
    report.remarks.push(format!(
        "({};{DATA}), {LISTS} lists as in the paper's experiments; by rotation as many as servers.",
        DATA + PARITY
    ));
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_follow_from_the_loads() {
        let list = |parity: [usize; 1], data: [usize; 2]| List {
            parity: parity.to_vec(),
            data: data.to_vec(),
        };
        // Loads after each list: 2 1 1 0, then 2 2 2 2, because server 3 gets the parity and the data goes to the
        // smaller numbers.
        assert_eq!(
            generate(4, 2, 1, 3),
            [list([0], [1, 2]), list([3], [1, 2]), list([0], [1, 2])]
        );
    }

    #[test]
    fn rotation_is_that_of_the_widest_turn() {
        assert_eq!(rotate(10, 10)[9].data, [9, 0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(rotate(10, 10)[9].parity, [7, 8]);
    }
}
