//! Static segments: a range lock of one reader-writer lock a segment, acquired in order.
#![doc = include_str!("../../../../docs/protocols/segments.md")]

use std::ops::Range;

use farlock_fabric::verb::{CHAIN_MAX, Link};
use farlock_fabric::word::Field;
use farlock_fabric::{Addr, Posted, Verb, WideAtomics};

use super::dslr::{Dslr, DslrWord};
use crate::lock::{Lock, Tried};
use crate::options::Setting;
use crate::promise::{LockKind, Promises, Proof, TokenSource};
use crate::site::{Outcome, Site};
use crate::slot::{PartWord, Phase};
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

    /// The site of a segment's lock.
    fn site<'a, E: WideAtomics>(site: &Site<'a, E>, segment: u32) -> Site<'a, E> {
        site.at(Self::word(site, segment))
    }

    fn word<E>(site: &Site<'_, E>, segment: u32) -> Addr {
        site.lock.plus(u64::from(segment) * PartWord::STRIDE)
    }

    /// Publishes which segments the slot wants, and how many of them it has.
    fn publish<E: WideAtomics>(&self, site: &Site<'_, E>, want: Extent, has: u32) {
        let segments = self.segments(want);
        let count = u16::try_from(segments.len()).expect("a request has at most 65,535 segments");
        let part = PartWord::of(segments.start, count);
        site.publish_part(part.with(PartWord::HAS, has.into()));
    }

    /// Gives segments back, as many as go out with one doorbell.
    fn give_back<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        want: Extent,
        segments: Range<u32>,
    ) -> Posted {
        let op = self.dslr.serving(want.mode());
        let verb = |segment| Verb::MaskedFaa128 { addr: Self::word(site, segment), op, hint: None };
        if segments.len() == 1 {
            return site.endpoint.post(verb(segments.start));
        }
        let chain: Vec<Link<'_>> = segments.take(CHAIN_MAX).map(|s| Link::from(verb(s))).collect();
        site.endpoint.post_chain(&chain)
    }

    /// Gives all of these segments back.
    async fn give_all_back<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        want: Extent,
        mut segments: Range<u32>,
    ) -> Outcome<()> {
        while !segments.is_empty() {
            site.endpoint.completion(self.give_back(site, want, segments.clone())).await?;
            segments.start = segments.end.min(segments.start + CHAIN_MAX as u32);
        }
        Ok(())
    }

    /// Takes a segment if that needs no waiting.
    async fn try_segment<E: WideAtomics>(&self, site: &Site<'_, E>, want: Extent) -> Outcome<bool> {
        let mut seen = None;
        loop {
            let Some(verb) = self.dslr.trying(site, want.mode(), seen) else { return Ok(false) };
            site.endpoint.verb(verb).await?;
            let old = site.endpoint.old();
            match self.dslr.tried(site, want.mode(), seen, old) {
                Tried::Granted(_) => return Ok(true),
                Tried::Busy => return Ok(false),
                Tried::Again(word) => seen = Some(word),
            }
            site.endpoint.checkpoint(&[old as u64, (old >> 64) as u64]);
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

    /// `n=COUNT`: segments; `units=COUNT`: units in each; and how waiters wait, as of
    /// [`Dslr`](super::dslr::Dslr).
    fn option(&mut self, name: &str) -> Option<Setting<'_>> {
        match name {
            "n" => Some(Setting::count(&mut self.count, 1..=SEGMENTS_MAX)),
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

    fn near_wrap(&self, steps: u16) -> u128 {
        self.dslr.near_wrap(steps)
    }
}

impl<E: WideAtomics> Lock<E> for Segments {
    type Want = Extent;
    type Grant = ();

    fn begin(&self, site: &Site<'_, E>, want: Extent) -> u32 {
        self.publish(site, want, 0);
        0
    }

    fn opening(&self, site: &Site<'_, E>, want: Extent) -> Verb<'static> {
        let first = Self::site(site, self.segments(want).start);
        self.dslr.opening(&first, want.mode())
    }

    fn opened(&self, site: &Site<'_, E>, want: Extent, old: u128) -> Option<()> {
        let segments = self.segments(want);
        let first = Self::site(site, segments.start);
        let holds = segments.len() == 1 && self.dslr.opened(&first, want.mode(), old).is_some();
        if holds {
            self.publish(site, want, 1);
        }
        holds.then_some(())
    }

    async fn wait_in_line(&self, site: &Site<'_, E>, want: Extent, old: u128) -> Outcome<()> {
        let (mode, mut old) = (want.mode(), Some(old));
        for (has, segment) in (0..).zip(self.segments(want)) {
            let here = Self::site(site, segment);
            let old = match old.take() {
                Some(old) => old,
                None => {
                    // First that the one before is held, then that this one is opened.
                    self.publish(site, want, has);
                    site.publish(Phase::Opening, mode, 0);
                    site.endpoint.verb(self.dslr.opening(&here, mode)).await?;
                    site.endpoint.old()
                }
            };
            if self.dslr.opened(&here, mode, old).is_none() {
                self.dslr.wait_in_line(&here, mode, old).await?;
            }
        }
        self.publish(site, want, self.segments(want).len() as u32);
        Ok(())
    }

    fn closing(&self, site: &Site<'_, E>, want: Extent, (): ()) -> Option<Verb<'static>> {
        let segments = self.segments(want);
        let op = self.dslr.serving(want.mode());
        let addr = Self::word(site, segments.start);
        (segments.len() == 1).then_some(Verb::MaskedFaa128 { addr, op, hint: None })
    }

    fn close(&self, site: &Site<'_, E>, want: Extent, (): ()) -> Option<Posted> {
        Some(self.give_back(site, want, self.segments(want)))
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
        self.give_all_back(site, want, rest).await
    }

    fn trying(&self, _: &Site<'_, E>, _: Extent, _: Option<u128>) -> Option<Verb<'static>> {
        None
    }

    fn tried(&self, _: &Site<'_, E>, _: Extent, _: Option<u128>, _: u128) -> Tried<()> {
        unreachable!("no verb alone is an attempt")
    }

    async fn attempt(&self, site: &Site<'_, E>, want: Extent) -> Outcome<Option<()>> {
        let segments = self.segments(want);
        for (has, segment) in (0..).zip(segments.clone()) {
            self.publish(site, want, has);
            if !self.try_segment(&Self::site(site, segment), want).await? {
                self.give_all_back(site, want, segments.start..segment).await?;
                return Ok(None);
            }
        }
        self.publish(site, want, segments.len() as u32);
        Ok(Some(()))
    }
}
