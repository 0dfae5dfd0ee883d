//! Reading far memory: of any length, of many places, and again where a completion was lost.

use farlock_fabric::verb::{CHAIN_MAX, WORDS_MAX};
use farlock_fabric::{Addr, Endpoint, Fault, Link, Verb};
use smallvec::SmallVec;

/// How often a verb whose completion was lost is posted again, if that does no harm.
pub(crate) const LOST_MAX: u32 = 16;

/// Words that were read. They go through several futures: to put them into the heap costs less than
/// to move them each time.
pub(crate) type Words = Vec<u64>;

/// Verbs that go out with one doorbell. Few do, mostly: longer ones are in the heap, for what is in
/// line is moved.
type Chain = SmallVec<[Link<'static>; 4]>;

/// So many zeros, to be overwritten. The C library's `calloc` passes by the caches that make its
/// `malloc` quick, and took a quarter of a get.
pub(crate) fn zeros<T: Copy + Default>(count: usize) -> Vec<T> {
    let mut zeros = Vec::with_capacity(count);
    zeros.resize(count, T::default());
    zeros
}

/// Reads so many words. May tear between any two.
pub(crate) async fn read<E: Endpoint>(
    endpoint: &E,
    addr: Addr,
    words: usize,
) -> Result<Words, Fault> {
    if (1..=WORDS_MAX).contains(&words) {
        posted_again(async || endpoint.verb(Verb::Read { addr, words: words as u16 }).await)
            .await?;
        let mut found = zeros(words);
        endpoint.copy_read(0, &mut found);
        return Ok(found);
    }
    let part = |first: usize| (addr.plus(first as u64 * 8), WORDS_MAX.min(words - first));
    let parts = (0..words).step_by(WORDS_MAX).map(part);
    gather(endpoint, &parts.collect::<SmallVec<[_; 2]>>()).await
}

/// Reads so many words where another word says that something lies. `None`: there is no memory, so
/// that word is damaged.
pub(crate) async fn read_named<E: Endpoint>(
    endpoint: &E,
    addr: Addr,
    words: usize,
) -> Result<Option<Words>, Fault> {
    match read(endpoint, addr, words).await {
        Err(Fault::OutOfBounds) => Ok(None),
        found => found.map(Some),
    }
}

/// Reads these places, each of at most [`WORDS_MAX`] words, a chain at a time. Returns their words,
/// one place after the other.
pub(crate) async fn gather<E: Endpoint>(
    endpoint: &E,
    places: &[(Addr, usize)],
) -> Result<Words, Fault> {
    let mut found = zeros(places.iter().map(|(_, words)| words).sum());
    let mut rest = &mut found[..];
    for places in places.chunks(CHAIN_MAX) {
        let link = |&(addr, words): &(Addr, usize)| Verb::Read { addr, words: words as u16 }.into();
        let chain: Chain = places.iter().map(link).collect();
        posted_again(async || endpoint.chain(&chain).await).await?;
        for (index, &(_, words)) in places.iter().enumerate() {
            let (part, behind) = rest.split_at_mut(words);
            let copied = endpoint.copy_read(index, part);
            assert_eq!(copied, words, "a read brings what it asked for");
            rest = behind;
        }
    }
    Ok(found)
}

/// Reads these places, of any length.
pub(crate) async fn read_all<E: Endpoint>(
    endpoint: &E,
    places: &[(Addr, usize)],
) -> Result<Vec<Vec<u64>>, Fault> {
    let mut parts = Vec::with_capacity(places.len());
    for &(addr, words) in places {
        for first in (0..words).step_by(WORDS_MAX) {
            parts.push((addr.plus(first as u64 * 8), WORDS_MAX.min(words - first)));
        }
    }
    let mut parts = read_many(endpoint, &parts).await?.into_iter();
    let whole = places.iter().map(|&(_, words)| match words {
        // Moved, not copied.
        1..=WORDS_MAX => parts.next().unwrap_or_default(),
        _ => parts.by_ref().take(words.div_ceil(WORDS_MAX)).flatten().collect(),
    });
    Ok(whole.collect())
}

/// Reads these places, each of at most [`WORDS_MAX`] words, a chain at a time.
pub(crate) async fn read_many<E: Endpoint>(
    endpoint: &E,
    places: &[(Addr, usize)],
) -> Result<Vec<Vec<u64>>, Fault> {
    let all = gather(endpoint, places).await?;
    let mut rest = &all[..];
    let part = |&(_, words): &(Addr, usize)| {
        let (part, behind) = rest.split_at(words);
        rest = behind;
        part.to_vec()
    };
    Ok(places.iter().map(part).collect())
}

/// Reads one word.
pub(crate) async fn read_word<E: Endpoint>(endpoint: &E, addr: Addr) -> Result<u64, Fault> {
    posted_again(async || endpoint.read64(addr).await).await?;
    Ok(endpoint.old() as u64)
}

/// Writes words that lie side by side. Where it fails any of them may be written yet.
pub(crate) async fn write<E: Endpoint>(
    endpoint: &E,
    addr: Addr,
    words: &[u64],
) -> Result<(), Fault> {
    let place = |at: usize| addr.plus((at * WORDS_MAX * 8) as u64);
    let parts = words.chunks(WORDS_MAX).enumerate();
    let links: Vec<Link<'_>> =
        parts.map(|(at, data)| Verb::Write { addr: place(at), data }.into()).collect();
    for chain in links.chunks(CHAIN_MAX) {
        endpoint.chain(chain).await?;
    }
    Ok(())
}

/// Compares and swaps a word to which neither value ever comes back. Whichever client made the
/// change, the word that is returned is `compare` or `swap` where it is made.
pub(crate) async fn swap_once<E: Endpoint>(
    endpoint: &E,
    addr: Addr,
    compare: u64,
    swap: u64,
) -> Result<u64, Fault> {
    posted_again(async || endpoint.cas64(addr, compare, swap).await).await?;
    Ok(endpoint.old() as u64)
}

/// Compares and swaps these words, each as [`swap_once`] does, a chain at a time. Returns what they
/// were, as it does.
pub(crate) async fn swap_many<E: Endpoint>(
    endpoint: &E,
    swaps: &[(Addr, u64, u64)],
) -> Result<Vec<u64>, Fault> {
    let mut found = Vec::with_capacity(swaps.len());
    for chain in swaps.chunks(CHAIN_MAX) {
        let links: Vec<Link<'_>> = chain
            .iter()
            .map(|&(addr, compare, swap)| Verb::Cas64 { addr, compare, swap }.into())
            .collect();
        posted_again(async || endpoint.chain(&links).await).await?;
        found.extend((0..links.len()).map(|index| endpoint.link(index).old as u64));
    }
    Ok(found)
}

async fn posted_again(mut post: impl AsyncFnMut() -> Result<(), Fault>) -> Result<(), Fault> {
    let mut ended = post().await;
    for _ in 0..LOST_MAX {
        if ended != Err(Fault::Lost) {
            break;
        }
        ended = post().await;
    }
    ended
}
