//! Bytes of files to and from far memory: all blocks of a request at once, a chain a node.

use std::ops::Range;

use farlock_fabric::{
    Addr, CHAIN_MAX, Endpoint, Fault, Link, MaskedAtomics, MaskedCas, Posted, Verb,
};

use super::layout::{Layout, Piece, WORD};

/// Reads these bytes of a file, and beside them the word that is its size. Returns the size.
pub(super) async fn read<E: Endpoint>(
    endpoint: &E,
    layout: &Layout,
    file: u32,
    offset: u64,
    into: &mut [u8],
) -> Result<u64, Fault> {
    let words = words_of(offset, into.len());
    let chains = chains(layout.pieces(file, words.clone()));
    let read = |piece: &Piece| Verb::Read { addr: piece.addr, words: words_in(piece) as u16 };
    let size = Verb::Read { addr: layout.size(file), words: 1 };
    let mut posted: Vec<Vec<Link<'_>>> = vec![vec![size.into()]];
    posted
        .extend(chains.iter().map(|chain| chain.iter().map(|piece| read(piece).into()).collect()));
    let mut found = vec![0; (words.end - words.start) as usize];
    let mut found_size = 0;
    carry_out(endpoint, &posted, |number| {
        let Some(chain) = number.checked_sub(1).map(|number| &chains[number]) else {
            found_size = endpoint.link(0).old as u64;
            return;
        };
        for (link, piece) in chain.iter().enumerate() {
            let at = (piece.words.start - words.start) as usize;
            let copied = endpoint.copy_read(link, &mut found[at..at + words_in(piece)]);
            assert_eq!(copied, words_in(piece), "a read brings all its words");
        }
    })
    .await?;
    let mut bytes = vec![0; found.len() * WORD as usize];
    let (chunks, _) = bytes.as_chunks_mut();
    chunks.iter_mut().zip(&found).for_each(|(chunk, word)| *chunk = word.to_le_bytes());
    let first = (offset - words.start * WORD) as usize;
    into.copy_from_slice(&bytes[first..first + into.len()]);
    Ok(found_size)
}

/// Writes these bytes of a file. A word that has other bytes too is changed by an atomic that
/// leaves those alone.
pub(super) async fn write<E: MaskedAtomics>(
    endpoint: &E,
    layout: &Layout,
    file: u32,
    offset: u64,
    bytes: &[u8],
) -> Result<(), Fault> {
    let words = words_of(offset, bytes.len());
    let image = Image::of(words.clone(), offset, bytes);
    let pieces = layout.pieces(file, words).flat_map(|piece| image.by_edges(piece));
    let chains = chains(pieces);
    let posted: Vec<Vec<Link<'_>>> =
        chains.iter().map(|chain| chain.iter().map(|p| image.verb(p).into()).collect()).collect();
    carry_out(endpoint, &posted, |_| ()).await
}

/// The words that so many bytes lie in.
fn words_of(offset: u64, bytes: usize) -> Range<u64> {
    offset / WORD..(offset + bytes as u64).div_ceil(WORD)
}

fn words_in(piece: &Piece) -> usize {
    (piece.words.end - piece.words.start) as usize
}

/// What is to be written, as words.
struct Image {
    /// Which words of the file.
    words: Range<u64>,
    /// Which of its bytes.
    bytes: Range<u64>,
    image: Vec<u64>,
}

impl Image {
    fn of(words: Range<u64>, offset: u64, bytes: &[u8]) -> Self {
        let mut padded = vec![0; ((words.end - words.start) * WORD) as usize];
        let first = (offset - words.start * WORD) as usize;
        padded[first..first + bytes.len()].copy_from_slice(bytes);
        let (chunks, _) = padded.as_chunks();
        let image = chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).collect();
        Self { words, bytes: offset..offset + bytes.len() as u64, image }
    }

    /// This piece, its first and last words by themselves where they are not whole.
    fn by_edges(&self, piece: Piece) -> impl Iterator<Item = Piece> + use<> {
        let Piece { node, addr, words } = piece;
        let is_whole = |word| self.mask(word) == u64::MAX;
        let start = words.start + u64::from(!is_whole(words.start));
        let end = words.end - u64::from(words.end > start && !is_whole(words.end - 1));
        let parts = [words.start..start, start..end, end..words.end];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.map(move |part| Piece {
            node,
            addr: addr.plus((part.start - words.start) * WORD),
            words: part,
        })
    }

    /// Which bits of a word are to be written.
    fn mask(&self, word: u64) -> u64 {
        let bits = |bytes: u64| bytes * 8;
        let before = self.bytes.start.saturating_sub(word * WORD);
        let behind = ((word + 1) * WORD).saturating_sub(self.bytes.end);
        u64::MAX << bits(before) & u64::MAX >> bits(behind)
    }

    fn verb(&self, piece: &Piece) -> Verb<'_> {
        let at = |word: u64| (word - self.words.start) as usize;
        let (addr, words) = (piece.addr, &self.image[at(piece.words.start)..at(piece.words.end)]);
        let mask = self.mask(piece.words.start);
        match words {
            [word] if mask != u64::MAX => masked(addr, *word, mask),
            data => Verb::Write { addr, data },
        }
    }
}

/// Stores these bits of a word, whatever it holds.
fn masked(addr: Addr, word: u64, mask: u64) -> Verb<'static> {
    let op = MaskedCas { compare: 0, compare_mask: 0, swap: word, swap_mask: mask };
    Verb::MaskedCas64 { addr, op }
}

/// Pieces by the nodes that they lie on, as many together as one doorbell takes.
fn chains(pieces: impl Iterator<Item = Piece>) -> Vec<Vec<Piece>> {
    let mut chains: Vec<Vec<Piece>> = Vec::new();
    for piece in pieces {
        let has_room =
            |chain: &&mut Vec<Piece>| chain[0].node == piece.node && chain.len() < CHAIN_MAX;
        match chains.iter_mut().find(has_room) {
            Some(chain) => chain.push(piece),
            None => chains.push(vec![piece]),
        }
    }
    chains
}

/// Posts all of these at once. `done` is told of each chain that took effect when the endpoint has
/// what it read.
async fn carry_out<E: Endpoint>(
    endpoint: &E,
    chains: &[Vec<Link<'_>>],
    mut done: impl FnMut(usize),
) -> Result<(), Fault> {
    let mut under_way = Vec::new();
    for (number, chain) in chains.iter().enumerate() {
        match endpoint.post_chain(chain) {
            Posted::Done(result) => {
                result?;
                done(number);
            }
            posted => under_way.push((number, endpoint.completion(posted))),
        }
    }
    for (number, completion) in under_way {
        completion.await?;
        done(number);
    }
    Ok(())
}
