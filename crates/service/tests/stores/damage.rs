//! Specification of stores whose memory was overwritten: what is damaged is told, and never another
//! value.

use farlock::{Kv, KvError};

use crate::stage::Stage;
use crate::stage::serving::Serving;

/// What was damaged is told, and all the rest is there.
#[test]
fn a_damaged_store_gives_what_is_whole() {
    use std::os::unix::fs::FileExt;
    const KEYS: u32 = 2_000;
    let stage = Stage::new();
    let kv = Kv::open(&stage.options(), "t").unwrap();
    for key in 0..KEYS {
        kv.put(key.to_le_bytes(), [key as u8 | 1; 100]).unwrap();
    }
    let path = stage.dir().join(".stores/default/t");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    // The value of every hundredth key.
    let mut damaged = 0;
    for key in (0..KEYS).step_by(100) {
        let value = [&key.to_le_bytes()[..], &[key as u8 | 1; 100]].concat();
        let at = bytes.windows(value.len()).position(|window| window == value).unwrap();
        file.write_all_at(b"damage", at as u64 + 50).unwrap();
        damaged += 1;
    }
    for key in 0..KEYS {
        let found = kv.get(key.to_le_bytes());
        match key % 100 {
            0 => assert!(matches!(found, Err(KvError::Corrupt)), "{key}: {found:?}"),
            _ => assert_eq!(found.unwrap().unwrap(), [key as u8 | 1; 100]),
        }
    }
    let dump = stage.file("dump");
    let (status, _, said) = stage.run(&["kv", "dump", "-s", "t", dump.to_str().unwrap()]);
    assert!(status == 69 && said.contains(&format!("at {damaged} places")), "{said}");
    let whole = std::fs::read(dump).unwrap();
    // Between the one that says which index the store has, and the one that counts them.
    let lines = whole.iter().filter(|byte| **byte == b'\n').count() - 2;
    assert_eq!(lines, (KEYS - damaged) as usize);
    let (status, listed, _) = stage.run(&["kv", "scan", "-s", "t"]);
    assert_eq!((status, listed.lines().count()), (69, lines));
}

/// A word of the table that names a block where there is no memory yet, or a node, which only trees
/// have, is damage like any other: of its own pair, and told.
#[test]
fn a_damaged_word_of_the_table_costs_its_own_pair_alone() {
    use std::os::unix::fs::FileExt;
    const KEYS: u32 = 2_000;
    let stage = Stage::new();
    let kv = Kv::open(&stage.options(), "t").unwrap();
    let serving = Serving::on(&stage);
    let there = Kv::open(&serving.options(), "t").unwrap();
    (0..KEYS).for_each(|key| kv.put(key.to_le_bytes(), "a value").unwrap());
    let path = stage.dir().join(".stores/default/t");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let words = || -> Vec<u64> {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    };
    let before = words();
    kv.put("hit", "a value").unwrap();
    let after = words();
    // The table lies before all blocks.
    let slot = (0..before.len()).find(|&at| before[at] != after[at]).unwrap();
    let (word, class) = (after[slot], after[slot] >> 17 & 63);
    assert!(before[slot] == 0 && (1..62).contains(&class), "{word:x}");
    // The same place of a chunk of 2 MiB that is far behind the last one, and a node.
    let far = word + ((1_000 * (2 << 20) / 8) << 31);
    for damaged in [far, word | 62 << 17 & !(1 << 17)] {
        file.write_all_at(&damaged.to_le_bytes(), slot as u64 * 8).unwrap();
        for kv in [&kv, &there] {
            let got = kv.get("hit");
            assert!(matches!(got, Err(KvError::Corrupt)), "{damaged:x}: {got:?}");
            assert_eq!(kv.get(7_u32.to_le_bytes()).unwrap().unwrap(), b"a value");
            let (whole, not): (Vec<_>, Vec<_>) = kv.scan().partition(Result::is_ok);
            assert_eq!(whole.len(), KEYS as usize, "{damaged:x}");
            assert!(matches!(not[..], [Err(KvError::Corrupt)]), "{damaged:x}: {not:?}");
        }
        let dump = stage.file("dump");
        let (status, _, said) = stage.run(&["kv", "dump", "-s", "t", dump.to_str().unwrap()]);
        assert!(status == 69 && said.contains("at 1 place"), "{damaged:x}: {said}");
    }
    file.write_all_at(&word.to_le_bytes(), slot as u64 * 8).unwrap();
    assert_eq!(there.get("hit").unwrap().unwrap(), b"a value");
}
