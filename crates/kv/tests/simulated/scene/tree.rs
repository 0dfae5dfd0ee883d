//! A tree, seen from outside: what its slots name, and which nodes were replaced.

use farlock_fabric::Addr;
use farlock_kv::{ChunkWord, Class, Header, Shape};

/// Bytes of the header of a store.
pub const HEADER_BYTES: u64 = 512 + 256 * 16;

/// Bytes of the units in which a slot says where a block lies.
pub const UNIT_BYTES: u64 = 8;

/// The blocks of keys that a tree names, and the nodes that are or were a part of it; of those in
/// chunks that count.
pub fn named(
    look: impl Fn(Addr) -> u64,
    shape: Shape,
    counts: impl Fn(ChunkWord) -> bool,
) -> (u64, u64) {
    let first = shape.bytes() - u64::from(shape.chunks) * shape.chunk_bytes;
    let does_count = |block: u64| {
        let chunk = (block * UNIT_BYTES - first) / shape.chunk_bytes;
        counts(ChunkWord(look(shape.base.plus(HEADER_BYTES + chunk * 8))))
    };
    let root = shape.base.plus(HEADER_BYTES + (u64::from(shape.chunks) * 8).next_multiple_of(64));
    let (mut slots, mut leaves, mut inside) = (vec![look(root)], 0, Vec::new());
    while let Some(word) = slots.pop() {
        match word >> 17 & 0x3f {
            0 => {}
            62 => {
                let (depth, kind, block) = (word & 0x7ff, word >> 11 & 3, word >> 31);
                inside.push(block);
                let lines = shape.base.plus(block * UNIT_BYTES + 16 + depth.next_multiple_of(8));
                slots.extend(slots_of(&look, lines, kind));
            }
            _ => leaves += u64::from(does_count(word >> 31)),
        }
    }
    let distinct: std::collections::BTreeSet<_> = inside.iter().collect();
    assert_eq!(distinct.len(), inside.len(), "a node is at one place");
    let nodes = inside.iter().filter(|block| does_count(**block)).count() as u64;
    (leaves, nodes + replaced(&look, shape, &counts, &inside))
}

/// What the slots of a node say that are some byte's.
fn slots_of(look: &impl Fn(Addr) -> u64, lines: Addr, kind: u64) -> Vec<u64> {
    let Some(count) = [1, 4, 16].get(kind as usize) else {
        return (0..257).map(|at| look(lines.plus(at * 8))).collect();
    };
    let line = |line: u64| {
        let first = lines.plus(line * 64);
        let map = look(first);
        let is_given = move |place: &u64| map >> (place * 9) & 0x1ff != 0;
        (0..7).filter(is_given).map(move |place| first.plus(8 + place * 8)).collect::<Vec<_>>()
    };
    (0..*count).flat_map(line).map(look).collect()
}

/// Nodes that are no part of it, and were: they are frozen.
fn replaced(
    look: &impl Fn(Addr) -> u64,
    shape: Shape,
    counts: impl Fn(ChunkWord) -> bool,
    inside: &[u64],
) -> u64 {
    let first = shape.bytes() - u64::from(shape.chunks) * shape.chunk_bytes;
    let mut replaced = 0;
    for chunk in 0..u64::from(shape.chunks) {
        let word = ChunkWord(look(shape.base.plus(HEADER_BYTES + chunk * 8)));
        let class = Class::from_number(word.class()).filter(|_| counts(word));
        let Some(class) = class else { continue };
        let Some(least) = Class::from_number(word.least()) else { continue };
        let (start, blocks) = (first + chunk * shape.chunk_bytes, shape.blocks(class));
        for block in shape.covered(class, least)..blocks {
            let is_over = look(shape.base.plus(start + u64::from(block) * 8));
            let behind = u64::from(blocks - block) * class.bytes();
            let at = start + shape.chunk_bytes - behind;
            let head = Header(look(shape.base.plus(at)));
            let kind = Header::VALUE_BYTES.max() - head.value_bytes();
            let is_node = head.generation() != is_over && kind < 3;
            if is_node && !inside.contains(&(at / UNIT_BYTES)) {
                let lines = at + 16 + head.key_bytes().next_multiple_of(8);
                replaced += look(shape.base.plus(lines)) >> 63;
            }
        }
    }
    replaced
}
