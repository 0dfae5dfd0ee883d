//! What goes over the wire: frames, to the server and back.
//!
//! A frame is its length in bytes (32 bits, without itself), its kind (8 bits) and its fields, all
//! little-endian. Frames follow each other without gaps, so any number of them travels in one
//! packet. Everything is checked before any of a frame takes effect; the other side of a frame that
//! is wrong is hung up on.

use crate::addr::{Addr, EndpointId, Mailbox, Slot};
use crate::endpoint::{Publication, Wait, Woken};
use crate::error::{Fault, Garbled};
use crate::verb::{CHAIN_MAX, Link, MaskedCas, MaskedFaa, Message, Verb, WORDS_MAX};

/// The first word of a connection, both ways: a peer that speaks something else is known at once.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"farlock\x01");

/// The version of what this module says. Both sides must speak the same.
pub const VERSION: u16 = 11;

/// Instead of the count of a chain's links: it is a single verb, of which the client is told only
/// if it failed.
pub(super) const UNSIGNALLED: u8 = u8::MAX;

/// The same: it is a single verb, and behind this stand its [`Patience`] and what the record of its
/// lane says if its comparison fails.
pub(super) const PATIENT: u8 = u8::MAX - 1;

/// For how long a server may hold a verb back, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Patience {
    /// While no other verb that is held back for the same word is granted what it waits for: as
    /// long as the line moves this begins anew each time.
    pub still: u64,
    /// In all.
    pub at_most: u64,
}

impl Patience {
    /// The longest that a server has.
    const MAX: Self = Self::fixed(1_000_000_000);

    /// For so long in any case.
    pub const fn fixed(nanos: u64) -> Self {
        Self { still: nanos, at_most: nanos }
    }

    /// No longer than this one.
    pub(super) fn min(self, other: Self) -> Self {
        let (still, at_most) = (self.still.min(other.still), self.at_most.min(other.at_most));
        Self { still, at_most }
    }

    pub(super) fn put(self, frame: &mut Framing<'_>) {
        frame.u64(self.still).u64(self.at_most);
    }

    /// What a client says, as far as a server is patient.
    pub(super) fn take(fields: &mut Fields<'_>) -> Result<Self, Garbled> {
        Ok(Self { still: fields.u64()?, at_most: fields.u64()? }.min(Self::MAX))
    }
}

/// What a record is to say, if anything.
pub(super) fn put_publication(frame: &mut Framing<'_>, publication: Option<Publication>) {
    match publication {
        Some(Publication { slot, word, value }) => {
            frame.u8(1).u8(slot.0).u8(word as u8).u64(value);
        }
        None => {
            frame.u8(0);
        }
    }
}

/// The same, as a client says it.
pub(super) fn take_publication(fields: &mut Fields<'_>) -> Result<Option<Publication>, Garbled> {
    match fields.u8()? {
        0 => Ok(None),
        1 => {
            let (slot, word, value) = (Slot(fields.u8()?), fields.u8()?.into(), fields.u64()?);
            Ok(Some(Publication { slot, word, value }))
        }
        _ => Err(Garbled("a record is to say something, or nothing")),
    }
}

/// How often a client asks for its lease in the time of one.
pub(super) const RENEWALS: u32 = 8;

/// Bytes of the longest frame: a chain of the longest writes, and what goes with each.
pub(super) const FRAME_MAX: usize = CHAIN_MAX * (WORDS_MAX * 8 + 32) + 64;

/// Bytes of a frame's length.
pub(super) const HEAD: usize = 4;

/// Messages of a slot that a client is sent ahead of their receipt: those that its mailbox holds.
pub(super) const AHEAD_MAX: usize = 4;

/// Peers that one wait, or one question, names at most.
pub(super) const PEERS_MAX: usize = 256;

/// Peers that one answer shows at most: with labels and hosts of the greatest length they fit in a
/// frame.
pub(super) const TOLD_MAX: usize = 384;

/// What a frame says that a client sends.
pub(super) mod request {
    /// The first of a connection: magic, version, the region's name, the client's home.
    pub(in super::super) const HELLO: u8 = 1;
    /// A new lane by this number; its process, where that lives, and its label.
    pub(in super::super) const ATTACH: u8 = 2;
    /// The lane ends; its endpoint is dead.
    pub(in super::super) const DETACH: u8 = 3;
    /// A verb of a lane, or a chain.
    pub(in super::super) const VERBS: u8 = 4;
    /// A word of a record.
    pub(in super::super) const PUBLISH: u8 = 5;
    /// A wait begins.
    pub(in super::super) const WAIT: u8 = 6;
    /// A wait is over, for reasons of the client's own.
    pub(in super::super) const END_WAIT: u8 = 7;
    /// The messages of a slot were taken, up to the one with this number.
    pub(in super::super) const TOOK: u8 = 8;
    /// Whether these peers live, and whether there is mail.
    pub(in super::super) const ASK: u8 = 9;
    /// A question about the region as a whole.
    pub(in super::super) const CALL: u8 = 10;
    /// The first and only of a tether's connection: magic, version, its secret.
    pub(in super::super) const TETHER: u8 = 11;
    /// The first of a connection that goes on where another one broke: the same, and the client's
    /// secret.
    pub(in super::super) const RESUME: u8 = 12;
    /// Behind it, a lane that lives, and by slot the number of the message that it takes next.
    pub(in super::super) const LANE: u8 = 13;
    /// Behind those, that there are no others.
    pub(in super::super) const LANES_END: u8 = 14;
    /// The same as [`HELLO`], by one for which no region is made.
    pub(in super::super) const FIND: u8 = 15;
}

/// What a frame says that the server sends.
pub(super) mod reply {
    /// The first of a connection: magic, version, the region's facts.
    pub(in super::super) const WELCOME: u8 = 1;
    /// The connection, or a call, is declined, for this reason.
    pub(in super::super) const DECLINED: u8 = 2;
    /// A lane is attached.
    pub(in super::super) const ATTACHED: u8 = 3;
    /// A verb or chain has completed.
    pub(in super::super) const DONE: u8 = 4;
    /// A wait has ended.
    pub(in super::super) const WOKEN: u8 = 5;
    /// A message.
    pub(in super::super) const MAIL: u8 = 6;
    /// An endpoint has come, or died.
    pub(in super::super) const PEER: u8 = 7;
    /// The answer to a call.
    pub(in super::super) const ANSWER: u8 = 8;
    /// Those that connect by this name find another region.
    pub(in super::super) const GONE: u8 = 9;
    /// The region that was to be found is not there.
    pub(in super::super) const ABSENT: u8 = 10;
    /// A lane that the client goes on with is dead.
    pub(in super::super) const DEAD: u8 = 10;
    /// Endpoints that are there, behind a greeting.
    pub(in super::super) const LIVING: u8 = 11;
}

/// The questions of a call.
pub(super) mod call {
    /// How long the heap is.
    pub(in super::super) const HEAP: u8 = 1;
    /// Make the heap at least so long.
    pub(in super::super) const LENGTHEN: u8 = 2;
    /// The endpoints that are there, those of the lowest indices beyond one.
    pub(in super::super) const PEERS: u8 = 3;
    /// What a tether of this lane is to say.
    pub(in super::super) const TETHER: u8 = 4;
    /// The client's lease begins anew.
    pub(in super::super) const RENEW: u8 = 5;
    /// Every process that had a tether of this lane by an earlier server has the one of this
    /// secret, or is gone.
    pub(in super::super) const TIED: u8 = 6;
    /// Give so many bytes of the heap from an address on their memory, where they have none.
    pub(in super::super) const RESERVE: u8 = 7;
}

/// The next frame of these bytes, and how many bytes it and its length take; `None` until all of
/// it is there.
pub(super) fn next_frame(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Garbled> {
    let Some(head) = bytes.first_chunk::<HEAD>() else { return Ok(None) };
    let length = u32::from_le_bytes(*head) as usize;
    if length == 0 || length > FRAME_MAX {
        return Err(Garbled("its length is out of range"));
    }
    Ok(bytes.get(HEAD..HEAD + length).map(|frame| (frame, HEAD + length)))
}

/// Writes one frame behind others.
pub(super) struct Framing<'b> {
    bytes: &'b mut Vec<u8>,
    begin: usize,
}

impl<'b> Framing<'b> {
    pub(super) fn new(bytes: &'b mut Vec<u8>, kind: u8) -> Self {
        let begin = bytes.len();
        bytes.extend_from_slice(&[0; HEAD]);
        bytes.push(kind);
        Self { bytes, begin }
    }

    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn u128(&mut self, value: u128) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn id(&mut self, id: EndpointId) -> &mut Self {
        self.u32(id.bits() as u32)
    }

    pub(super) fn words(&mut self, words: &[u64]) -> &mut Self {
        words.iter().for_each(|word| {
            self.u64(*word);
        });
        self
    }

    /// A text of at most 65,535 bytes; a longer one is cut.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        let most = usize::from(u16::MAX).min(text.len());
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.u16(end as u16);
        self.bytes.extend_from_slice(&text.as_bytes()[..end]);
        self
    }

    /// Copies the frame, as far as it is written and as if that were all.
    pub(super) fn copy_to(&self, into: &mut Vec<u8>) {
        let frame = &self.bytes[self.begin..];
        into.extend_from_slice(&((frame.len() - HEAD) as u32).to_le_bytes());
        into.extend_from_slice(&frame[HEAD..]);
    }

    /// Writes the length, now that it is known.
    pub(super) fn end(&mut self) {
        let length = (self.bytes.len() - self.begin - HEAD) as u32;
        self.bytes[self.begin..self.begin + HEAD].copy_from_slice(&length.to_le_bytes());
    }
}

/// Reads the fields of a frame.
#[derive(Clone, Copy)]
pub(super) struct Fields<'f>(pub(super) &'f [u8]);

impl<'f> Fields<'f> {
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Garbled> {
        let (chunk, rest) = self.0.split_first_chunk::<N>().ok_or(Garbled("it is too short"))?;
        self.0 = rest;
        Ok(*chunk)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Garbled> {
        self.chunk().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Garbled> {
        self.chunk().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Garbled> {
        self.chunk().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Garbled> {
        self.chunk().map(u64::from_le_bytes)
    }

    pub(super) fn u128(&mut self) -> Result<u128, Garbled> {
        self.chunk().map(u128::from_le_bytes)
    }

    pub(super) fn id(&mut self) -> Result<EndpointId, Garbled> {
        self.u32().map(|bits| EndpointId::from_bits(bits.into()))
    }

    fn bytes(&mut self, count: usize) -> Result<&'f [u8], Garbled> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Garbled("it is too short"))?;
        self.0 = rest;
        Ok(bytes)
    }

    /// So many words, in place of what `into` had.
    pub(super) fn words(&mut self, count: usize, into: &mut Vec<u64>) -> Result<(), Garbled> {
        let (chunks, _) = self.bytes(count * 8)?.as_chunks::<8>();
        into.clear();
        into.extend(chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)));
        Ok(())
    }

    pub(super) fn text(&mut self) -> Result<&'f str, Garbled> {
        let length = self.u16()?.into();
        let text = std::str::from_utf8(self.bytes(length)?);
        text.map_err(|_| Garbled("a text in it is not UTF-8"))
    }

    /// Why something was declined, for people.
    pub(super) fn reason(&mut self) -> Result<String, Garbled> {
        self.text().map(visible)
    }

    pub(super) fn ids(&mut self) -> Result<Vec<EndpointId>, Garbled> {
        let count = usize::from(self.u16()?);
        if count > PEERS_MAX {
            return Err(Garbled("it names too many peers"));
        }
        (0..count).map(|_| self.id()).collect()
    }

    /// Nothing may follow.
    pub(super) fn end(self) -> Result<(), Garbled> {
        if self.0.is_empty() { Ok(()) } else { Err(Garbled("it is too long")) }
    }
}

/// A text as people may be shown it: in one line, without what moves a terminal's cursor, and no
/// longer than they read.
pub(super) fn visible(text: &str) -> String {
    /// Characters that are shown.
    const SHOWN_MAX: usize = 1000;
    let visible = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().take(SHOWN_MAX).map(visible).collect()
}

/// What a verb is called; with the flags, the first byte of its fields.
mod code {
    pub(super) const READ: u8 = 1;
    pub(super) const WRITE: u8 = 2;
    pub(super) const CAS64: u8 = 3;
    pub(super) const FAA64: u8 = 4;
    pub(super) const MASKED_CAS64: u8 = 5;
    pub(super) const MASKED_FAA64: u8 = 6;
    pub(super) const MASKED_CAS128: u8 = 7;
    pub(super) const MASKED_FAA128: u8 = 8;
    pub(super) const SEND: u8 = 9;
    /// Served after every earlier read of the chain.
    pub(super) const FENCE: u8 = 0x80;
    /// A hint follows.
    pub(super) const HINT: u8 = 0x40;
}

/// Writes a verb of a chain. Of a write that is too long nothing is written: the server refuses
/// what has no words in the same way.
pub(super) fn put_link(frame: &mut Framing<'_>, link: &Link<'_>) {
    let fence = if link.fence { code::FENCE } else { 0 };
    match link.verb {
        Verb::Read { addr, words } => {
            frame.u8(code::READ | fence).u64(addr.bits()).u16(words);
        }
        Verb::Write { addr, data } => {
            let data = if data.len() > WORDS_MAX { &[] } else { data };
            let frame = frame.u8(code::WRITE | fence).u64(addr.bits());
            frame.u16(data.len() as u16).words(data);
        }
        Verb::Cas64 { addr, compare, swap } => {
            frame.u8(code::CAS64 | fence).u64(addr.bits()).u64(compare).u64(swap);
        }
        Verb::Faa64 { addr, add } => {
            frame.u8(code::FAA64 | fence).u64(addr.bits()).u64(add);
        }
        Verb::MaskedCas64 { addr, op } => {
            let frame = frame.u8(code::MASKED_CAS64 | fence).u64(addr.bits());
            frame.words(&[op.compare, op.compare_mask, op.swap, op.swap_mask]);
        }
        Verb::MaskedFaa64 { addr, op } => {
            let frame = frame.u8(code::MASKED_FAA64 | fence).u64(addr.bits());
            frame.u64(op.add).u64(op.boundary);
        }
        Verb::MaskedCas128 { addr, op, hint } => {
            put_wide(frame, code::MASKED_CAS128 | fence, addr, hint);
            frame.u128(op.compare).u128(op.compare_mask).u128(op.swap).u128(op.swap_mask);
        }
        Verb::MaskedFaa128 { addr, op, hint } => {
            put_wide(frame, code::MASKED_FAA128 | fence, addr, hint);
            frame.u128(op.add).u128(op.boundary);
        }
        Verb::Send { to, message } => {
            frame.u8(code::SEND | fence).u64(to.bits()).words(&message);
        }
    }
}

fn put_wide(frame: &mut Framing<'_>, code: u8, addr: Addr, hint: Option<u128>) {
    let flag = if hint.is_some() { code::HINT } else { 0 };
    frame.u8(code | flag).u64(addr.bits());
    if let Some(hint) = hint {
        frame.u128(hint);
    }
}

/// Reads a verb of a chain; what it writes comes to lie in `data`.
pub(super) fn take_link<'d>(
    fields: &mut Fields<'_>,
    data: &'d mut Vec<u64>,
) -> Result<Link<'d>, Garbled> {
    let first = fields.u8()?;
    let (fence, has_hint) = (first & code::FENCE != 0, first & code::HINT != 0);
    let kind = first & !(code::FENCE | code::HINT);
    if kind == code::SEND {
        let to = Mailbox::from_bits(fields.u64()?);
        let message: Message = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        return Ok(Link { verb: Verb::Send { to, message }, fence });
    }
    let addr = Addr::from_bits(fields.u64()?);
    let hint = if has_hint { Some(fields.u128()?) } else { None };
    let verb = match kind {
        code::READ => Verb::Read { addr, words: fields.u16()? },
        code::WRITE => {
            let count = usize::from(fields.u16()?);
            if count > WORDS_MAX {
                return Err(Garbled("a write in it is too long"));
            }
            fields.words(count, data)?;
            Verb::Write { addr, data }
        }
        code::CAS64 => Verb::Cas64 { addr, compare: fields.u64()?, swap: fields.u64()? },
        code::FAA64 => Verb::Faa64 { addr, add: fields.u64()? },
        code::MASKED_CAS64 => {
            let (compare, compare_mask) = (fields.u64()?, fields.u64()?);
            let (swap, swap_mask) = (fields.u64()?, fields.u64()?);
            Verb::MaskedCas64 { addr, op: MaskedCas { compare, compare_mask, swap, swap_mask } }
        }
        code::MASKED_FAA64 => {
            let op = MaskedFaa { add: fields.u64()?, boundary: fields.u64()? };
            Verb::MaskedFaa64 { addr, op }
        }
        code::MASKED_CAS128 => {
            let (compare, compare_mask) = (fields.u128()?, fields.u128()?);
            let (swap, swap_mask) = (fields.u128()?, fields.u128()?);
            let op = MaskedCas { compare, compare_mask, swap, swap_mask };
            Verb::MaskedCas128 { addr, op, hint }
        }
        code::MASKED_FAA128 => {
            let op = MaskedFaa { add: fields.u128()?, boundary: fields.u128()? };
            Verb::MaskedFaa128 { addr, op, hint }
        }
        _ => return Err(Garbled("a verb in it is unknown")),
    };
    Ok(Link { verb, fence })
}

/// What a completion brings: as much of it as the verb reads.
mod shape {
    pub(super) const NOTHING: u8 = 0;
    pub(super) const NARROW: u8 = 1;
    pub(super) const WIDE: u8 = 2;
    pub(super) const WORDS: u8 = 3;
}

/// Writes how a verb ended. What a longer read brought is in `words`, everything else in `old`.
pub(super) fn put_end(
    frame: &mut Framing<'_>,
    verb: &Verb<'_>,
    ended: Result<(), Fault>,
    old: u128,
    words: &[u64],
) {
    frame.u8(status_code(ended));
    if ended.is_err() {
        frame.u8(shape::NOTHING);
        return;
    }
    match verb {
        Verb::Write { .. } | Verb::Send { .. } => frame.u8(shape::NOTHING),
        Verb::Read { .. } => frame.u8(shape::WORDS).u16(words.len() as u16).words(words),
        Verb::MaskedCas128 { .. } | Verb::MaskedFaa128 { .. } => frame.u8(shape::WIDE).u128(old),
        _ => frame.u8(shape::NARROW).u64(old as u64),
    };
}

/// How a verb ended, and what it read.
pub(super) enum Ended {
    /// An atomic's old word, or nothing.
    Old(Result<(), Fault>, u128),
    /// A read; its words lie where they were asked to.
    Words,
}

/// Reads how a verb ended.
pub(super) fn take_end(fields: &mut Fields<'_>, words: &mut Vec<u64>) -> Result<Ended, Garbled> {
    let status = status_of(fields.u8()?)?;
    Ok(match fields.u8()? {
        shape::NOTHING => Ended::Old(status, 0),
        shape::NARROW => Ended::Old(status, fields.u64()?.into()),
        shape::WIDE => Ended::Old(status, fields.u128()?),
        shape::WORDS => {
            let count = usize::from(fields.u16()?);
            if count == 0 || count > WORDS_MAX {
                return Err(Garbled("a read in it has a length that none has"));
            }
            fields.words(count, words)?;
            Ended::Words
        }
        _ => return Err(Garbled("an end in it is of no known shape")),
    })
}

/// Every fault by its number on the wire.
const FAULTS: [Fault; 9] = [
    Fault::Lost,
    Fault::OutOfBounds,
    Fault::Misaligned,
    Fault::NoRight,
    Fault::Stale,
    Fault::Revoked,
    Fault::MailboxFull,
    Fault::PeerGone,
    Fault::Unsupported,
];

pub(super) fn status_code(ended: Result<(), Fault>) -> u8 {
    let number = |fault| FAULTS.iter().position(|known| *known == fault);
    ended.err().map_or(0, |fault| number(fault).expect("a fault of the list") as u8 + 1)
}

pub(super) fn status_of(code: u8) -> Result<Result<(), Fault>, Garbled> {
    match usize::from(code).checked_sub(1) {
        None => Ok(Ok(())),
        Some(number) => match FAULTS.get(number) {
            Some(fault) => Ok(Err(*fault)),
            None => Err(Garbled("a fault in it is unknown")),
        },
    }
}

/// Writes why a wait ended.
pub(super) fn put_woken(frame: &mut Framing<'_>, woken: Woken) {
    let (code, peer) = match woken {
        Woken::Changed | Woken::Elapsed => (0, EndpointId::NOBODY),
        Woken::Mail => (1, EndpointId::NOBODY),
        Woken::PeerGone(peer) => (2, peer),
    };
    frame.u8(code).id(peer);
}

/// Reads why a wait ended.
pub(super) fn take_woken(fields: &mut Fields<'_>) -> Result<Woken, Garbled> {
    let (code, peer) = (fields.u8()?, fields.id()?);
    match code {
        0 => Ok(Woken::Changed),
        1 => Ok(Woken::Mail),
        2 => Ok(Woken::PeerGone(peer)),
        _ => Err(Garbled("a wait in it ended for no known reason")),
    }
}

/// A wait as the server knows it: what of it concerns memory, mail and peers. Time is the client's.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    pub(super) word: Option<(Addr, u64)>,
    pub(super) ignoring: u64,
    pub(super) mail: Option<Slot>,
    pub(super) peers: Vec<EndpointId>,
}

pub(super) fn put_watch(frame: &mut Framing<'_>, wait: &Wait<'_>) {
    frame.u8(u8::from(wait.word.is_some()) | u8::from(wait.mail.is_some()) << 1);
    if let Some((addr, value)) = wait.word {
        frame.u64(addr.bits()).u64(value).u64(wait.ignoring);
    }
    if let Some(slot) = wait.mail {
        frame.u8(slot.0);
    }
    put_ids(frame, wait.peers);
}

/// Writes the names of peers: no more than a frame may have.
pub(super) fn put_ids(frame: &mut Framing<'_>, peers: &[EndpointId]) {
    let peers = &peers[..peers.len().min(PEERS_MAX)];
    frame.u16(peers.len() as u16);
    peers.iter().for_each(|peer| {
        frame.id(*peer);
    });
}

pub(super) fn take_watch(fields: &mut Fields<'_>) -> Result<Watch, Garbled> {
    let flags = fields.u8()?;
    let has = |flag: u8| flags & flag != 0;
    let word = if has(1) { Some((Addr::from_bits(fields.u64()?), fields.u64()?)) } else { None };
    let ignoring = if has(1) { fields.u64()? } else { 0 };
    let mail = if has(2) { Some(Slot(fields.u8()?)) } else { None };
    let watch = Watch { word, ignoring, mail, peers: fields.ids()? };
    if watch.word.is_none() && watch.mail.is_none() && watch.peers.is_empty() {
        return Err(Garbled("nothing can end a wait in it"));
    }
    Ok(watch)
}

/// A frame without its length, for tests.
#[cfg(test)]
pub(super) fn body(
    kind: u8,
    fill: impl for<'f, 'b> FnOnce(&'f mut Framing<'b>) -> &'f mut Framing<'b>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut frame = Framing::new(&mut bytes, kind);
    fill(&mut frame);
    frame.end();
    bytes.split_off(HEAD)
}
