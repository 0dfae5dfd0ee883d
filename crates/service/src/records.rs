//! The records of the slots of many endpoints, read with few verbs: by a server each is a trip.

use farlock_fabric::endpoint::RECORD_WORDS;
use farlock_fabric::{Addr, Endpoint, Fault, Slot, Verb, WORDS_MAX};

/// What the records of all slots of these endpoints say, beside their indices, which increase. What
/// lies between two of them is read with them.
pub(crate) async fn read_records<E: Endpoint>(
    endpoint: &E,
    indices: impl Iterator<Item = u16>,
) -> Result<Vec<(u16, [u64; RECORD_WORDS])>, Fault> {
    let slots = (0..endpoint.slots()).map(Slot);
    let all = indices.flat_map(|index| slots.clone().map(move |slot| (index, slot)));
    let mut all = all.map(|(index, slot)| (index, endpoint.record(index, slot))).peekable();
    let mut records = Vec::new();
    let mut words = [0; WORDS_MAX];
    while let Some((index, first)) = all.next() {
        let word = |addr: Addr| (addr.bits() - first.bits()) as usize / 8;
        let mut batch = vec![(index, 0)];
        while let Some((index, addr)) =
            all.next_if(|(_, addr)| word(*addr) + RECORD_WORDS <= WORDS_MAX)
        {
            batch.push((index, word(addr)));
        }
        let end = batch[batch.len() - 1].1 + RECORD_WORDS;
        endpoint.verb(Verb::Read { addr: first, words: end as u16 }).await?;
        endpoint.copy_read(0, &mut words[..end]);
        let record = |at: usize| words[at..].first_chunk().expect("what was read");
        records.extend(batch.into_iter().map(|(index, at)| (index, *record(at))));
    }
    Ok(records)
}
