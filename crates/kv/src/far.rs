//! Reading far memory: of any length, of many places, and again where a completion was lost.

use farlock_fabric::verb::{CHAIN_MAX, WORDS_MAX};
use farlock_fabric::{Addr, Endpoint, Fault, Link, Verb};

/// How often a verb whose completion was lost is posted again, if that does no harm.
pub(crate) const LOST_MAX: u32 = 16;

/// Reads so many words. May tear between any two.
pub(crate) async fn read<E: Endpoint>(
    endpoint: &E,
    addr: Addr,
    words: usize,
) -> Result<Vec<u64>, Fault> {
    let mut found = read_all(endpoint, &[(addr, words)]).await?;
    Ok(found.pop().expect("one place was asked for"))
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
    let mut found = Vec::with_capacity(places.len());
    for chain in places.chunks(CHAIN_MAX) {
        let links: Vec<Link<'_>> = chain
            .iter()
            .map(|&(addr, words)| Verb::Read { addr, words: words as u16 }.into())
            .collect();
        posted_again(async || endpoint.chain(&links).await).await?;
        for (index, &(_, words)) in chain.iter().enumerate() {
            let mut part = vec![0; words];
            let copied = endpoint.copy_read(index, &mut part);
            assert_eq!(copied, words, "a read brings what it asked for");
            found.push(part);
        }
    }
    Ok(found)
}

/// Reads one word.
pub(crate) async fn read_word<E: Endpoint>(endpoint: &E, addr: Addr) -> Result<u64, Fault> {
    posted_again(async || endpoint.read64(addr).await).await?;
    Ok(endpoint.old() as u64)
}

/// Compares and swaps a word to which neither value ever comes back. Whoever made the change, the
/// word that is returned is `compare` or `swap` where it is made.
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
