//! The bytes of `docs/formats/code.md`. A failure here means that the format has changed.

mod support;

use paritas_code::sum;
use support::{code, matrix, slices, slices_mut};

#[test]
fn the_matrix_is_the_documented_one() {
    assert_eq!(
        matrix(&code(4, 3)),
        [1, 1, 1, 1, 0x01, 0xe7, 0xfd, 0x02, 0x01, 0xfd, 0xbe, 0x2c]
    );
}

#[test]
fn the_worked_example_holds() {
    let data = [&b"Parity i"[..], b"s the XO", b" of what", b" is data"].map(<[u8]>::to_vec);
    let mut parity = vec![vec![0; 8]; 3];
    code(4, 3).encode(&slices(&data), &mut slices_mut(&mut parity));
    assert_eq!(parity[0], [0x23, 0x47, 0x13, 0x01, 0x02, 0x50, 0x6d, 0x33]);
    assert_eq!(parity[1], [0xea, 0x17, 0x64, 0x5a, 0xeb, 0xd6, 0x90, 0xef]);
    assert_eq!(parity[2], [0xf1, 0xa6, 0x44, 0x02, 0x7b, 0xde, 0x71, 0xaf]);

    let sums: Vec<u32> = data.iter().chain(&parity[..1]).map(|chunk| sum::of(chunk)).collect();
    assert_eq!(sums, [0xb3cf_c624, 0x1cf0_c31a, 0x57ae_baf1, 0xee95_0506, 0x1604_bac9]);
    assert_eq!(
        sums[..4].iter().fold(0, |x, s| x ^ s),
        sums[4],
        "the sum of an XOR is the XOR of the sums"
    );
}

#[test]
fn extents_add_up_as_documented() {
    assert_eq!(sum::of(b"123456789"), 0x58e3_fa20);
    assert_eq!(sum::of_extent(9, 0, b"1234"), 0x9e24_e9cd);
    assert_eq!(sum::of_extent(9, 4, b"56789"), 0xc6c7_13ed);
    assert_eq!(sum::of_extent(16_384, 100, b"Paritas"), 0xad8e_e43a);
}
