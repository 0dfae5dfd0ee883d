//! Static segments: a range lock of one reader-writer lock a segment, acquired in order.
#![doc = include_str!("../../../../docs/protocols/segments.md")]

use std::ops::Range;

use farlock_fabric::verb::{CHAIN_MAX, Link};
use farlock_fabric::word::Field;
use farlock_fabric::{Addr, Posted, Verb, WideAtomics};

use super::dslr::{Dslr, DslrWord};
use crate::prelude::*;
use crate::slot::PartWord;
use crate::want::{Extent, Want};

/// The most segments.
const SEGMENTS_MAX: u32 = 1 << 28;
/// The most of a lock that has room in a table of locks of any kind.
const TABLED_SEGMENTS_MAX: u32 = 64;
/// Segments, if nothing else is said.
const SEGMENTS: u32 = 8;

/// A range lock of static segments.
#[derive(Clone, Debug)]
pub struct Segments {
    /// The lock of a segment. It has no lease.
    pub dslr: Dslr,
    /// How many there are.
    pub count: u32,
    /// Units in each; the last has all that come after as well.
    pub units: u32,
}

impl Default for Segments {
    fn default() -> Self {
        Self { dslr: Dslr::default(), count: SEGMENTS, units: 1 }
    }
}

impl Segments {
    /// The segments that these units lie in.
    fn segments(&self, want: Extent) -> Range<u32> {
        let units = want.units(u32::MAX);
        let segment = |unit: u32| (unit / self.units).min(self.count - 1);
        segment(units.start)..segment(units.end - 1) + 1
    }
}

impl<'a, E: WideAtomics> Protocol<'a, E, Segments> {
    /// The word of a segment's lock.
    fn word(self, segment: u32) -> Addr {
        self.lock.plus(u64::from(segment) * PartWord::STRIDE)
    }

    /// The site of a segment's lock.
    fn segment(self, segment: u32) -> Site<'a, E> {
        self.at(self.word(segment))
    }

    /// Publishes which segments the slot wants, and how many of them it has.
    fn publish_segments(self, want: Extent, has: u32) {
        let segments = self.rules.segments(want);
        let count = u16::try_from(segments.len()).expect("a request has at most 65,535 segments");
        let part = PartWord::of(segments.start, count);
        self.publish_part(part.with(PartWord::HAS, has.into()));
    }

    /// Gives segments back, as many as go out with one doorbell.
    fn give_back(self, want: Extent, segments: Range<u32>) -> Posted {
        let op = self.rules.dslr.serving(want.mode());
        let verb = |segment| Verb::MaskedFaa128 { addr: self.word(segment), op, hint: None };
        if segments.len() == 1 {
            return self.endpoint.post(verb(segments.start));
        }
        let chain: Vec<Link<'_>> = segments.take(CHAIN_MAX).map(|s| Link::from(verb(s))).collect();
        self.endpoint.post_chain(&chain)
    }

    /// Gives all of these segments back.
    async fn give_all_back(self, want: Extent, mut segments: Range<u32>) -> Outcome<()> {
        while !segments.is_empty() {
            self.endpoint.completion(self.give_back(want, segments.clone())).await?;
            segments.start = segments.end.min(segments.start + CHAIN_MAX as u32);
        }
        Ok(())
    }

    /// Takes a segment if that needs no waiting.
    async fn try_segment(self, want: Extent) -> Outcome<bool> {
        let mut seen = None;
        loop {
            let Some(verb) = self.rules.dslr.trying(&self, want.mode(), seen) else {
                return Ok(false);
            };
            let old = self.verb(verb).await?;
            match self.rules.dslr.tried(&self, want.mode(), seen, old) {
                Tried::Granted(_) => return Ok(true),
                Tried::Busy => return Ok(false),
                Tried::Again(word) => seen = Some(word),
            }
            self.endpoint.checkpoint(&[old as u64, (old >> 64) as u64]);
        }
    }
}

impl LockKind for Segments {
    const BYTES: u64 = TABLED_SEGMENTS_MAX as u64 * PartWord::STRIDE;
    const SHARES: bool = true;
    const FIELDS: &'static [Field] = DslrWord::FIELDS;
    const TOKENS: TokenSource = TokenSource::Nowhere;

    fn bytes(&self) -> u64 {
        Self::BYTES.max(u64::from(self.count) * PartWord::STRIDE)
    }

    fn units(&self) -> Option<u64> {
        Some(u64::from(self.count) * u64::from(self.units))
    }

    /// `units=COUNT`: units in each segment; `n=COUNT`: segments, or behind it `space=COUNT`: units
    /// of all; and how waiters wait, as of
    /// [`Dslr`](super::dslr::Dslr).
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        match name {
            "n" => Some(Setting::count(&mut self.count, 1..=SEGMENTS_MAX)),
            "space" => Some(Setting::space(|space| {
                let count = space.div_ceil(self.units.into());
                self.count = count.min(SEGMENTS_MAX.into()) as u32;
                count <= SEGMENTS_MAX.into()
            })),
            "units" => Some(Setting::count(&mut self.units, 1..=u32::MAX)),
            _ => self.dslr.waiting.option(name),
        }
    }

    fn promises(&self) -> Promises {
        let proof = self.dslr.promises().proof;
        Promises {
            proof: Proof {
                patient: "n=2:omega=2500000",
                handed_on: &[],
                leased: &[],
                in_parts: &[0, 1, 2, 3, 4],
                ..proof
            },
            ..Promises::EXCLUSION
        }
    }

    /// All units of its segments; the last one has all that come after.
    fn covers(&self, units: Range<u32>) -> Range<u32> {
        let segments = self.segments(Extent::new(Mode::Exclusive, units));
        let is_last = segments.end == self.count;
        let end = if is_last { u32::MAX } else { segments.end * self.units };
        segments.start * self.units..end
    }

    fn near_wrap(&self, steps: u16) -> u128 {
        self.dslr.near_wrap(steps)
    }
}

impl<E: WideAtomics> Lock<E> for Segments {
    type Want = Extent;
    type Grant = ();

    fn begin(&self, site: &Site<'_, E>, want: Extent) -> u32 {
        site.by(self).publish_segments(want, 0);
        0
    }

    fn opening(&self, site: &Site<'_, E>, want: Extent) -> Verb<'static> {
        let first = site.by(self).segment(self.segments(want).start);
        self.dslr.opening(&first, want.mode())
    }

    fn opened(&self, site: &Site<'_, E>, want: Extent, old: u128) -> Option<()> {
        let segments = self.segments(want);
        let first = site.by(self).segment(segments.start);
        let holds = segments.len() == 1 && self.dslr.opened(&first, want.mode(), old).is_some();
        if holds {
            site.by(self).publish_segments(want, 1);
        }
        holds.then_some(())
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, want: Extent, old: u128) -> Outcome<()> {
        let (mode, mut old) = (want.mode(), Some(old));
        for (has, segment) in (0..).zip(self.segments(want)) {
            let here = site.by(self).segment(segment);
            let old = match old.take() {
                Some(old) => old,
                None => {
                    // First that the one before is held, then that this one is opened.
                    site.by(self).publish_segments(want, has);
                    site.publish(Phase::Opening, mode, 0);
                    site.verb(self.dslr.opening(&here, mode)).await?
                }
            };
            if self.dslr.opened(&here, mode, old).is_none() {
                self.dslr.wait_in_line(&here, mode, old).await?;
            }
        }
        site.by(self).publish_segments(want, self.segments(want).len() as u32);
        Ok(())
    }

    fn closing(&self, site: &Site<'_, E>, want: Extent, (): ()) -> Option<Verb<'static>> {
        let segments = self.segments(want);
        let op = self.dslr.serving(want.mode());
        let addr = site.by(self).word(segments.start);
        (segments.len() == 1).then_some(Verb::MaskedFaa128 { addr, op, hint: None })
    }

    fn close(&self, site: &Site<'_, E>, want: Extent, (): ()) -> Option<Posted> {
        Some(site.by(self).give_back(want, self.segments(want)))
    }

    fn closed(&self, _: &Site<'_, E>, want: Extent, (): (), _: u128) -> bool {
        self.segments(want).len() <= CHAIN_MAX
    }

    /// What did not go out with the first doorbell.
    async fn hand_over(
        &self,
        site: &Site<'_, E>,
        want: Extent,
        (): (),
        _: Option<u128>,
    ) -> Outcome<()> {
        let segments = self.segments(want);
        let rest = segments.start + CHAIN_MAX as u32..segments.end;
        site.by(self).give_all_back(want, rest).await
    }

    fn trying(&self, _: &Site<'_, E>, _: Extent, _: Option<u128>) -> Option<Verb<'static>> {
        None
    }

    async fn attempt(&self, site: &Site<'_, E>, want: Extent) -> Outcome<Option<()>> {
        let segments = self.segments(want);
        for (has, segment) in (0..).zip(segments.clone()) {
            site.by(self).publish_segments(want, has);
            if !site.by(self).segment(segment).by(self).try_segment(want).await? {
                site.by(self).give_all_back(want, segments.start..segment).await?;
                return Ok(None);
            }
        }
        site.by(self).publish_segments(want, segments.len() as u32);
        Ok(Some(()))
    }
}
