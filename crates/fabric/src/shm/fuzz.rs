//! Fuzzing of a region's header: whatever is in a file, it is opened or refused.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::layout::{BLOCK_BYTES, Capacity, HEADER_WORDS, Layout, check_header};
use super::region::{Options, Region};
use super::testing::TestDir;
use crate::addr::RegionId;
use crate::connection::Origin;
use crate::endpoint::{Endpoint, block_on};
use crate::error::ConnectError;
use crate::fuzz::{Fuzzer, executions, within};

/// Headers as creators and users leave them.
fn corpus() -> Vec<Vec<u8>> {
    let floor = Origin { incarnation: 7, first_count: 5 };
    let capacity = |endpoints, slots, max_bytes| Capacity { endpoints, slots, max_bytes };
    [capacity(8, 2, 1 << 30), capacity(1, 1, 1 << 24), capacity(16_000, 64, 1 << 40)]
        .map(|capacity| {
            let layout = Layout::new(capacity);
            layout.header(Some(floor), layout.heap + BLOCK_BYTES, 99)
        })
        .map(|words| words.iter().flat_map(|word| word.to_le_bytes()).collect())
        .to_vec()
}

#[test]
fn a_header_is_believed_only_where_the_file_has_all_that_it_says() {
    let (mut fuzzer, corpus) = (Fuzzer::new(1), corpus());
    let (mut sound, mut bytes) = (0, Vec::new());
    for _ in 0..executions(400_000) {
        bytes.clone_from(&corpus[fuzzer.below(corpus.len())]);
        fuzzer.change(&mut bytes, &corpus);
        bytes.resize(HEADER_WORDS * 8, 0);
        let mut words = [0; HEADER_WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*chunk);
        }
        let file_bytes = fuzzer.number() % (1 << 32);
        let Ok(found) = within(0, &bytes, || check_header(&words, file_bytes)) else { continue };
        sound += 1;
        assert!(found.bytes <= file_bytes, "{words:x?}");
        assert!(found.layout.heap < found.bytes, "{words:x?}");
        assert!(found.bytes <= found.layout.capacity.max_bytes, "{words:x?}");
    }
    assert!(sound > 1000, "only {sound} of them were sound: too many changes");
}

/// Opens files with damaged headers, attaches where it can, and uses what it was given.
#[test]
fn a_damaged_file_is_refused_or_used_within_its_bounds() {
    let dir = TestDir::new("fuzz-header");
    let mut options = Options::new(dir.path(), dir.path().join("state"), "region");
    (options.endpoints, options.heap_bytes, options.max_bytes) = (8, 1 << 16, 1 << 24);
    drop(Region::open(&options).expect("a region"));
    let path = dir.path().join("region");
    let whole = std::fs::read(&path).expect("its file");
    // Its header, the bits of taken places and the first bells.
    let corpus = [whole[..5000].to_vec(), whole[..HEADER_WORDS * 8].to_vec()];
    let mut fuzzer = Fuzzer::new(2);
    let (mut opened, mut refused) = (0, 0);
    for round in 0..executions(3000) {
        let mut bytes = corpus[fuzzer.below(2)].clone();
        fuzzer.change(&mut bytes, &corpus);
        let file = File::create(&path).expect("a file");
        let length = if fuzzer.one_in(4) { fuzzer.below(whole.len()) } else { whole.len() };
        file.write_all_at(&whole, 0).expect("it is written");
        file.write_all_at(&bytes, 0).expect("it is written");
        file.set_len(length as u64).expect("it is cut");
        // The durable state is drawn anew where the origin is damaged, and grows without bound.
        options.state_dir = dir.path().join(format!("state-{}", round % 64));
        match within(1 << 20, &bytes, || Region::open(&options)) {
            Ok(region) => {
                opened += 1;
                use_all_of(&region);
            }
            Err(ConnectError::Malformed { .. }) => refused += 1,
            // What an origin of chance leads to.
            Err(ConnectError::Io { .. } | ConnectError::IncarnationsExhausted { .. }) => {}
            Err(error) => panic!("{error:?} for {bytes:02x?}"),
        }
    }
    assert!(opened > 100 && refused > 500, "{opened} opened, {refused} refused");
}

/// The first and the last word, and those beyond.
fn use_all_of(region: &Region) {
    let (heap, bytes) = region.heap();
    assert_eq!(heap.region(), RegionId(1));
    let Ok(endpoint) = region.endpoint() else { return };
    for at in [0, bytes - 8] {
        assert!(block_on(&endpoint, endpoint.faa64(heap.plus(at), 1)).is_ok());
    }
    assert!(block_on(&endpoint, endpoint.faa64(heap.plus(bytes), 1)).is_err());
}
