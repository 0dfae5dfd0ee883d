//! Specification: a store that has no more memory says so, loses nothing, and has room again for
//! whatever comes when pairs are removed.

use crate::stage::{self, Stage};
use farlock::kv::{Index, StoreOptions};
use farlock::{Kv, KvError};

/// Fills a store until it is full, and looks whether anything is missing.
#[test]
fn filling_actor() {
    if !stage::is_actor() {
        return;
    }
    let kv = Kv::open(&stage::options_from_environment(), "t").unwrap();
    let value = |key: u32| vec![key as u8; 100 + key as usize % 20_000];
    let full = (0..).find_map(|key: u32| match kv.put(key.to_le_bytes(), value(key)) {
        Ok(()) => None,
        Err(error @ KvError::Full { .. }) => Some((key, error)),
        Err(error) => panic!("{error}"),
    });
    let (keys, error) = full.unwrap();
    assert_eq!(error.code(), "store-full");
    assert!(error.hint().contains("remove"), "{}", error.hint());
    let kept = |key: u32| kv.get(key.to_le_bytes()).unwrap() == Some(value(key));
    assert!((0..keys).all(kept), "what was stored is there");
    assert_eq!(kv.get(keys.to_le_bytes()).unwrap(), None);
    // What is removed makes room again.
    for key in (0..keys).step_by(2) {
        assert!(kv.remove(key.to_le_bytes()).unwrap());
    }
    for key in (0..keys).step_by(2) {
        kv.put(key.to_le_bytes(), value(key)).unwrap();
    }
    assert!((0..keys).all(kept));
    println!("\ncounted {keys}");
}

/// Runs an actor of this file whose files may have so many MiB.
fn with_little_memory(actor: &str, mebibytes: u32) {
    let stage = Stage::new();
    let mut shell = stage.program("sh");
    // In blocks of 512 bytes.
    let limit = format!("ulimit -f {}; trap '' XFSZ; exec \"$0\" \"$@\"", mebibytes << 11);
    shell.args(["-c", &limit]);
    shell.arg(std::env::current_exe().unwrap());
    shell.args([actor, "--exact", "--nocapture"]).env("FARLOCK_TEST_ACTOR", "1");
    let output = shell.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("counted "), "{said}");
}

#[test]
fn a_full_store_says_so_and_loses_nothing() {
    with_little_memory("full::filling_actor", 64);
}

/// Fills a store with values of this length, and removes them all. Returns how many bytes the
/// values had.
fn fills_and_empties(kv: &Kv, length: usize) -> usize {
    let put = |key: u32| kv.put(key.to_le_bytes(), vec![key as u8; length]);
    let keys = (0..).find(|&key| put(key).is_err()).unwrap();
    assert!(matches!(put(keys), Err(KvError::Full { .. })), "{length} bytes");
    for key in 0..keys {
        assert_eq!(kv.get(key.to_le_bytes()).unwrap(), Some(vec![key as u8; length]));
        assert!(kv.remove(key.to_le_bytes()).unwrap());
    }
    keys as usize * length
}

#[test]
fn refilling_actor() {
    if !stage::is_actor() {
        return;
    }
    let options = stage::options_from_environment();
    for index in [Index::Hash, Index::Ordered] {
        let name = format!("{index:?}").to_lowercase();
        let open = || Kv::open(&options, StoreOptions::new(&name).with_index(index)).unwrap();
        let kv = open();
        for length in [4_000, 200, 60_000] {
            let bytes = fills_and_empties(&kv, length);
            assert!(bytes > 6 << 20, "{index:?}: {bytes} bytes in values of {length}");
        }
        // What one client leaves another one uses.
        drop(kv);
        let bytes = fills_and_empties(&open(), 1_000);
        assert!(bytes > 6 << 20, "{index:?}: {bytes} bytes for another client");
        println!("\ncounted {bytes}");
    }
}

#[test]
fn memory_of_removed_pairs_is_for_pairs_of_any_length() {
    with_little_memory("full::refilling_actor", 24);
}
