//! Waiting for others, and what is done for those among them who are dead.
//!
//! A word is read first, and the records of the living after. So what the word says and no living
//! client's record bears out belongs to the dead, or the word has changed since; and a client that
//! mends the word compares what it saw. That goes for tickets and for counts, which never come back
//! to a value. Bits do, and are cleared otherwise ([`Params::clean`]).

use std::mem::take;

use farlock_fabric::{Addr, EndpointId, Fault, MaskedCas, Nanos, Patience, Verb, WideAtomics};

use super::course::{Course, Half, Plan, Stand};
use super::living::{Living, living};
use super::tree::Node;
use super::word::{self, NodeWord};
use crate::event::Event;
use crate::record::bakery::Doubt;
use crate::site::Site;
use crate::slot::Phase;
use crate::want::Mode;

/// A waiter in line reads at least once in the time that so many before it pause.
const LINE_MAX: u16 = 8;

/// A newcomer looks around so often, for a tenth of a second in all, before it takes a call back
/// that nobody makes use of: who has called may be stopped.
const LOOKS_AT_CALL: u8 = 4;

/// How long a waiter that has what others may wait for trusts those in its way at most, in
/// nanoseconds: so long it may keep one waiting that holds what it waits for itself.
const TRUST_NS_MAX: Nanos = 40_000_000;

/// Where there are more places than so many, a look costs too much to be made that often.
const PLACES_FEW: usize = 256;

/// What a client must know besides what it wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Params {
    pub(super) plan: Plan,
    /// Whether a client keeps its turn while it waits for who occupies a node above.
    pub(super) keeps_turn: bool,
    /// Whether it keeps a token that is void.
    pub(super) keeps_token: bool,
    /// Whether one that was given some leaves of its node gives all of them back.
    pub(super) frees_all_leaves: bool,
    /// Whether one that was given all of them does not mind that it was late.
    pub(super) fast_is_never_late: bool,
    /// Whether a hold that is divided is given up before its parts are taken.
    pub(super) leaves_first: bool,
    /// Whether one that has waited for those below it looks again whether there are any.
    pub(super) looks_again: bool,
    /// Whether a writer that becomes a reader minds those that may have looked meanwhile.
    pub(super) minds_torn_looks: bool,
    /// Whether a request posts what takes bits that it has found taken, held back or not.
    pub(super) is_eager: bool,
    /// The pause between two reads, in nanoseconds.
    pub(super) poll_ns: Nanos,
    /// How waits spend their time where the back end has a choice.
    pub(super) patience: Patience,
}

/// What a client must wait for before it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bar {
    /// That the owner of this node leaves.
    Owner(Node),
    /// That the readers of this node leave.
    Readers(Node),
    /// That bits of the leaf are free.
    Bits(Node),
    /// That nobody is in line at this node.
    Line(Node),
    /// That fewer are at this node and below it, by this word.
    Crowd(Node, Half),
    /// That nobody below asks newcomers of this node to wait, by this word.
    Called(Node, Half),
    /// That nobody asks newcomers to wait that want what is wanted of this leaf.
    CalledFor(Node),
    /// That no cleaner occupies this node.
    Cleaner(Node),
}

impl Bar {
    /// A number for what an explorer has to tell apart.
    pub(super) fn code(self) -> u64 {
        let (kind, node) = match self {
            Self::Line(node) => (1, node),
            Self::Owner(node) => (2, node),
            Self::Bits(node) => (3, node),
            Self::Crowd(node, Half::Writers) => (4, node),
            Self::Crowd(node, Half::Readers) => (9, node),
            Self::Readers(node) => (5, node),
            Self::Called(node, half) => (6 + half as u64, node),
            Self::Cleaner(node) => (8, node),
            Self::CalledFor(leaf) => (10, leaf),
        };
        kind << 32 | u64::from(node.index())
    }
}

/// A word of a node, and what is waited for there.
pub(super) type Wanted = (Node, Half, Until);

/// What a client waits for at a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Until {
    /// That it is this ticket's turn.
    Turn(u16),
    /// That the node is not occupied.
    Vacant,
    /// That nobody is in its line.
    NoLine,
    /// That no reader is there, or, at a leaf, none of these bits.
    Unread(u64),
    /// That no reader is there, nor a part below it of what one had there.
    Emptied,
    /// That nobody is below it.
    Deserted,
    /// That fewer are below it and in its line.
    Roomy,
    /// That these bits are free.
    Free(u64),
    /// That nobody asks newcomers to wait.
    Uncalled,
    /// The same of newcomers that want these units of a leaf below the node in this mode.
    UncalledFor(Node, (u64, Mode)),
    /// That no cleaner occupies the node; another owner may.
    Uncleaned,
}

/// All that a node has.
const ALL: u64 = u64::MAX;

impl Until {
    /// Of what a writer wants at its next node. Below an internal one readers may go on by parts of
    /// what they had at it, which it counts, and which were not there when the writer looked.
    pub(super) fn unread_by(course: &Course) -> Self {
        course.mask().map_or(Self::Emptied, Self::Unread)
    }

    /// Whether that is so.
    pub(super) fn is_met(self, seen: u64) -> bool {
        let node = NodeWord(seen);
        match self {
            Self::Turn(ticket) => node.is_turn_of(ticket) && node.call() == 0,
            Self::Uncalled | Self::UncalledFor(..) => node.call() == 0,
            Self::Vacant | Self::Uncleaned => node.occ() == 0,
            Self::NoLine => node.is_free(),
            Self::Unread(_) => node.in_line() == 0,
            Self::Emptied => node.in_line() == 0 && node.below() == 0,
            Self::Deserted => node.below() == 0,
            Self::Roomy => !node.is_crowded(),
            Self::Free(mask) => seen & mask == 0,
        }
    }

    /// What of the word that is as `seen` tells of those that it waits for.
    const fn of(self, seen: u64) -> u64 {
        if let Self::Free(mask) = self { seen & mask } else { seen }
    }

    /// The bits that it waits for, of a leaf whose word is as `seen`.
    const fn taken(self, seen: u64) -> u64 {
        if let Self::Free(mask) = self { seen & mask } else { 0 }
    }

    /// The token of the one among these that holds units for which it waits.
    fn holder(self, living: &[Living]) -> Option<u64> {
        let holders = living.iter().filter(|other| other.holds() && matches!(self, Self::Free(_)));
        holders.map(|holder| holder.token).max()
    }

    /// For what it waits at a word that was as `seen`: whether those in line are too many, or those
    /// below; or those who ask it to wait, where it is its turn.
    pub(super) const fn at(self, half: Half, seen: NodeWord) -> Self {
        match (self, half, seen.is_line_crowded()) {
            (Self::Roomy, Half::Writers, true) => Self::NoLine,
            (Self::Roomy, Half::Readers, true) => Self::Unread(ALL),
            (Self::Roomy, _, false) => Self::Deserted,
            (Self::Emptied, ..) if seen.in_line() == 0 => Self::Deserted,
            (Self::Emptied, ..) => Self::Unread(ALL),
            (Self::Turn(ticket), ..) if seen.is_turn_of(ticket) => Self::Uncalled,
            _ => self,
        }
    }

    /// Whether it waits for a caller alone: those whom that one waits for have left.
    const fn is_unused_call(self, half: Half, seen: u64) -> bool {
        let word = NodeWord(seen);
        let is_deserted = match half {
            Half::Writers => word.occ() == 0,
            Half::Readers => word.in_line() == 0,
        };
        // What the caller wants of a leaf this word does not tell.
        matches!(self, Self::UncalledFor(..))
            || matches!(self.at(half, word), Self::Uncalled) && is_deserted
    }

    /// The line that it waits for, at a word that was as `seen`, where the clients in it must be
    /// looked at as soon as it has changed: if tickets in it may be lost, or be those of others.
    fn line_to_look_at(self, seen: u64) -> Option<u64> {
        let minds = matches!(self, Self::Turn(_) | Self::NoLine | Self::Roomy);
        match self {
            Self::Uncleaned => Some(NodeWord(seen).line()),
            Self::UncalledFor(..) => Some(seen & word::D_CNT),
            // Of a leaf most may read other units, and these come and go.
            Self::Unread(mask) if mask != ALL => Some(NodeWord(seen).line()),
            _ => NodeWord(seen).line_of_lost().filter(|_| minds),
        }
    }

    /// The bits of a word that was as `seen` of which a change may mean that it is met, or that
    /// others are in its way than were: a waiter need not be woken for others.
    fn minded(self, seen: u64) -> u64 {
        let node = NodeWord(seen);
        let line = if node.lost() == 0 { word::LOST } else { word::LINE };
        match self {
            // A turn changes by one: what it has in common with the ticket from the top on stays
            // until that is next.
            Self::Turn(ticket) => match node.turn() ^ ticket {
                0 => word::OCC | word::CALL | word::T_CNT,
                apart => line | word::turn_bit(apart.ilog2()),
            },
            Self::Vacant => word::OCC | word::T_CNT,
            Self::NoLine => word::OCC | word::T_CNT | word::T_MAX | line,
            Self::Unread(_) => word::T_CNT,
            Self::Emptied => word::T_CNT | word::D_CNT,
            Self::Deserted => word::D_CNT,
            Self::Roomy => word::T_CNT | word::D_CNT | line,
            Self::Free(mask) => mask,
            Self::Uncalled => word::CALL,
            Self::Uncleaned => word::OCC | word::LINE,
            // Of those that call one may stop.
            Self::UncalledFor(..) => word::CALL | word::D_CNT,
        }
    }

    /// Whether it waits for this client, when the word was as `seen`.
    pub(super) fn waits_for(
        self,
        living: &Living,
        (node, half): (Node, Half),
        seen: NodeWord,
    ) -> bool {
        match self {
            Self::Turn(_) | Self::Vacant | Self::NoLine => {
                living.gets_in_line(node) || living.has_turn(node, seen)
            }
            Self::Unread(_) => living.may_read(node),
            Self::Deserted => living.may_be_below(node, half),
            Self::Uncalled => living.calls_at(node),
            Self::UncalledFor(leaf, wanted) => living.calls_for(leaf, wanted),
            Self::Uncleaned => living.cleans_below(node, seen),
            Self::Roomy | Self::Emptied => unreachable!("they are in line or below"),
            Self::Free(mask) => living.bits(node) & mask != 0,
        }
    }
}

/// What came of waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Met {
    /// What was waited for.
    Yes,
    /// Others alone that do not keep the request out: see [`Found::Apart`].
    Apart,
    /// Bits of this leaf are those of the dead.
    DeadBits(Node),
    /// The living have been in the way for long, and the request has what others may wait for.
    Stuck,
    /// Others came before it too often, at a leaf of which it wants several units.
    Outrun,
    /// It is to ask newcomers to wait that want its unit, or to ask them no more.
    ToCall,
    /// The living have the bits still that it waits for, and it is to ask for these again: they are
    /// handed from one that asks to the next, and never seen to be free.
    AskAgain,
    /// The request was withdrawn.
    Left,
}

/// What a waiter counts.
struct Tally {
    /// The bits that others had at its last look, of those that it waits for.
    taken: u64,
    /// How often others came before it.
    outrun: u8,
    /// How often it looked around and found the living in its way, and that others wait for it.
    in_vain: u8,
    /// Whether one of these is to be let through first.
    lets_through: bool,
    /// How often it found a call of which nobody makes use.
    unused: u8,
    /// Whether it looks around again before long, each time.
    looks_often: bool,
    /// Whether it has looked around, and is to ask for what it wants before it does so again.
    has_looked: bool,
}

impl Tally {
    /// Those that have the bits at its first look have not come since.
    fn of(course: &mut Course) -> Self {
        let (taken, outrun) = (0, course.outrun);
        let (in_vain, lets_through, unused) = (take(&mut course.in_vain), false, 0);
        let (looks_often, has_looked) = (false, false);
        Self { taken, outrun, in_vain, lets_through, unused, looks_often, has_looked }
    }

    /// It has looked around, and found that others wait for what it has, or that of the call for
    /// which it waits nobody may make use.
    fn finds(&mut self, course: &Course, awaited: Awaited, is_unused_call: bool) {
        self.unused += u8::from(is_unused_call);
        if course.may_step_back() {
            self.in_vain += u8::from(awaited != Awaited::No);
            self.lets_through = awaited == Awaited::First;
        }
    }

    /// The word is as `seen` now.
    fn sees(&mut self, course: &Course, until: Until, seen: u64, doubt: &mut Doubt) {
        doubt.sees(until.of(seen));
        if until.taken(seen) != self.taken && course.can_be_outrun() {
            (self.taken, self.outrun) = (until.taken(seen), self.outrun.saturating_add(1));
        }
    }

    /// Whether it is to take a call back of which nobody makes use.
    fn takes_call_back(&mut self) -> bool {
        let takes = self.unused == LOOKS_AT_CALL;
        self.unused %= LOOKS_AT_CALL;
        takes
    }

    /// It has looked around, and asks again before it does the next time if it `asks` at all.
    fn will_ask(&mut self, asks: bool, course: &Course, doubt: &mut Doubt) {
        self.has_looked = asks;
        if asks {
            doubt.trust_at_most(course.asks_again_ns());
        }
    }

    /// Whether it is to ask again for bits that the living had when it looked around.
    const fn asks_again(&self, doubt: &Doubt) -> bool {
        self.has_looked && doubt.is_due() && !doubt.has_lost_one()
    }

    /// It asks again, and then goes on to count how often it looked around in vain.
    const fn ask_again(&self, course: &mut Course) -> Met {
        course.in_vain = self.in_vain;
        Met::AskAgain
    }

    /// What it is to do instead of waiting, if it has seen enough.
    fn is_enough(&self, course: &Course, until: Until) -> Option<Met> {
        if matches!(until, Until::Free(_)) && course.is_to_call_for_unit() != course.passes.calls {
            return Some(Met::ToCall);
        }
        if matches!(until, Until::Free(_)) && course.is_passed_at_several() {
            return Some(Met::Outrun);
        }
        let is_stuck = || course.is_to_step_back(self.in_vain, self.looks_often);
        match self.outrun > course.plan.outrun_max {
            true => Some(Met::Outrun),
            false => (self.lets_through || is_stuck()).then_some(Met::Stuck),
        }
    }

    /// What an explorer has to tell apart.
    fn survivors(&self) -> u64 {
        let looks = u64::from(self.unused) << 1 | u64::from(self.has_looked);
        u64::from(self.outrun) << 16 | looks << 8 | u64::from(self.in_vain)
    }
}

/// What came of looking around.
pub(super) enum Found {
    /// Those it waits for live: these, or others whose records do not say so any more. The request
    /// may have what others wait for.
    Living(Vec<Living>, Awaited),
    /// Others, beside whom it may go on: readers that want no bit of those that were waited for, or
    /// an owner that is no cleaner.
    Apart,
    /// The word was mended, or has changed.
    Mended,
    /// Bits that nobody alive has.
    DeadBits,
}

/// Whether others may wait for what a request has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Awaited {
    No,
    Yes,
    /// One among them is to be let through first.
    First,
}

impl Awaited {
    /// Of a request beside these, which may have its next node if it `claims` that.
    fn by(living: &[Living], course: &Course, claims: bool) -> Self {
        let reached = course.reached(claims);
        match living.iter().any(|other| other.awaits(course, reached)) {
            false => Self::No,
            true if living.iter().any(|other| other.goes_before(course, reached)) => Self::First,
            true => Self::Yes,
        }
    }
}

impl Params {
    /// What a request waits for where this is in its way.
    pub(super) fn wanted(&self, course: &Course, bar: Bar) -> Wanted {
        match bar {
            Bar::Owner(node) => (node, Half::Writers, Until::Vacant),
            Bar::Line(node) => (node, Half::Writers, Until::NoLine),
            Bar::Readers(node) => (node, Half::Readers, Until::Unread(ALL)),
            Bar::Crowd(node, half) => (node, half, Until::Roomy),
            Bar::Called(node, half) => (node, half, Until::Uncalled),
            Bar::Cleaner(node) => (node, Half::Writers, Until::Uncleaned),
            Bar::CalledFor(leaf) => {
                let above = leaf.parent().expect("a leaf is not the root");
                (above, Half::Writers, Until::UncalledFor(leaf, course.units_to_take()))
            }
            Bar::Bits(leaf) => {
                let mask = course.mask().expect("a leaf alone has bits");
                (leaf, Half::Writers, Until::Free(mask))
            }
        }
    }

    /// Waits until what is in the way of a request is no more, with nothing at its next node.
    pub(super) async fn wait_at<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        bar: Bar,
    ) -> Result<Met, Fault> {
        let wanted = self.wanted(course, bar);
        self.wait_as(site, course, wanted, None).await
    }

    /// Waits until nobody occupies this node above the next one, of which it is this ticket's turn.
    pub(super) async fn wait_with_turn<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        above: Node,
        ticket: u16,
    ) -> Result<Met, Fault> {
        self.wait_as(site, course, (above, Half::Writers, Until::Vacant), Some(ticket)).await
    }

    /// Waits with nothing at the next node but a ticket.
    async fn wait_as<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        wanted: Wanted,
        ticket: Option<u16>,
    ) -> Result<Met, Fault> {
        let stand = Stand { phase: Phase::Waiting, claims: false, ticket };
        course.publish(site, stand);
        self.wait_until(site, course, wanted, stand).await
    }

    /// Waits until it is the turn of this ticket of the next node.
    pub(super) async fn wait_for_turn<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        ticket: u16,
    ) -> Result<Met, Fault> {
        let wanted = (course.next(), Half::Writers, Until::Turn(ticket));
        self.wait_as(site, course, wanted, Some(ticket)).await
    }

    /// Waits for those that are at the next node, which the request has claimed, or below it.
    pub(super) async fn wait_below<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        wanted: Wanted,
    ) -> Result<Met, Fault> {
        let stand = Stand { phase: Phase::Claiming, claims: true, ticket: course.ticket() };
        course.publish(site, stand);
        self.wait_until(site, course, wanted, stand).await
    }

    /// Waits at the word of a node, and helps it along where only the dead are in the way.
    async fn wait_until<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        course: &mut Course,
        wanted: Wanted,
        stand: Stand,
    ) -> Result<Met, Fault> {
        let (node, half, until) = wanted;
        let here = site.at(self.plan.word(site.lock, node, half));
        let (mut doubt, mut looked, mut tally) = (Doubt::new::<E>(), None, Tally::of(course));
        let asks = matches!(until, Until::Free(_)) && self.is_patient(site, course);
        loop {
            if site.is_withdrawn() {
                return Ok(Met::Left);
            }
            site.endpoint.read64(here.lock).await?;
            let seen = site.endpoint.old() as u64;
            if until.is_met(seen) {
                return Ok(Met::Yes);
            }
            if course.calls_by(node, half) && NodeWord(seen).call() == 0 {
                self.call_again(site, course, seen).await?;
                continue;
            }
            tally.sees(course, until, seen, &mut doubt);
            if tally.asks_again(&doubt) {
                return Ok(tally.ask_again(course));
            }
            let line = until.line_to_look_at(seen);
            if doubt.is_due() || line.is_some() && line != looked {
                looked = line;
                match self.look_around(site, &mut doubt, course, stand, wanted, seen).await? {
                    Found::Living(living, awaited) if are_sure(&living) => {
                        if course.looks_for_passes(until.holder(&living)) {
                            self.call_for_unit(site, course).await?;
                        }
                        tally.finds(course, awaited, until.is_unused_call(half, seen));
                        tally.looks_often = looks_often(site, course, stand, &mut doubt);
                        tally.will_ask(asks, course, &mut doubt);
                    }
                    Found::Living(..) => {}
                    Found::Apart => return Ok(Met::Apart),
                    Found::Mended => continue,
                    Found::DeadBits => return Ok(Met::DeadBits(node)),
                }
            }
            if let Some(met) = tally.is_enough(course, until) {
                return Ok(met);
            }
            if tally.takes_call_back() && !self.is_call_in_use(site, node, half).await? {
                site.endpoint.verb(Verb::MaskedCas64 { addr: here.lock, op: word::HUSH }).await?;
                continue;
            }
            let patience = doubt.patience() << 24 | tally.survivors();
            site.endpoint.checkpoint(&[seen, doubt.hash(), patience, looked.unwrap_or(0)]);
            let pause_ns = (!E::WATCHES_MEMORY).then(|| self.pause_ns(until, seen));
            let ignoring = !(until.minded(seen) | course.minded_by_caller(node, half));
            doubt.wait_or_withdraw(&here, (seen, ignoring), pause_ns, self.patience).await;
        }
    }

    /// How long a waiter pauses that has found the word as `seen`: in line the longer the more are
    /// before it. Nothing is drawn, nor counted: what an explorer does not know decides nothing.
    fn pause_ns(&self, until: Until, seen: u64) -> Nanos {
        let before = match until {
            Until::Turn(ticket) => NodeWord(seen).before(ticket).clamp(1, LINE_MAX),
            _ => 1,
        };
        self.poll_ns * Nanos::from(before)
    }

    /// Looks around for those it waits for, and mends the word if no living client is among them.
    async fn look_around<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        doubt: &mut Doubt,
        course: &Course,
        stand: Stand,
        wanted: Wanted,
        seen: u64,
    ) -> Result<Found, Fault> {
        course.publish(site, Stand { phase: Phase::Repairing, ..stand });
        let found = self.mend(site, (course, stand.claims), wanted, seen).await?;
        course.publish(site, stand);
        match &found {
            Found::Living(living, _) => {
                let is_vague = living.iter().any(Living::is_about_to_change);
                doubt.watch::<E>(living.iter().map(|other| other.who.endpoint), is_vague);
                // What their records say they may have left already.
                if are_sure(living) {
                    doubt.trust_for_a_while();
                }
            }
            Found::Mended => {
                doubt.watch::<E>(std::iter::empty(), true);
                doubt.trust_again();
            }
            Found::Apart | Found::DeadBits => {}
        }
        Ok(found)
    }

    /// Mends a word that was `seen` so if no living client is among those for whom a request waits
    /// there, which may have its next node as well if it `claims` that.
    pub(super) async fn mend<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        (course, claims): (&Course, bool),
        (node, half, until): Wanted,
        seen: u64,
    ) -> Result<Found, Fault> {
        let (word, addr) = (NodeWord(seen), self.plan.word(site.lock, node, half));
        let until = until.at(half, word);
        let mut living = living(site, self.plan, site.lock).await?;
        let in_line = living.iter().filter_map(|other| other.ticket_of(node));
        let own = if let Until::Turn(ticket) = until { Some(ticket) } else { None };
        let next = in_line.chain(own).min_by_key(|&ticket| word.before(ticket));
        let awaited = Awaited::by(&living, course, claims);
        let shares = course.reached(claims).1 == Mode::Shared;
        let is_called = living.iter().any(|other| other.calls_at(node));
        let minds_few = matches!(until, Until::Uncleaned) || is_called;
        living.retain(|other| until.waits_for(other, (node, half), word));
        let op = match until {
            // All tickets before that of one who lives, or all.
            Until::Turn(_) | Until::Vacant | Until::NoLine if living.is_empty() => {
                let next = next.filter(|&ticket| word.before(ticket) < word.in_line());
                let next = next.unwrap_or(word.next_ticket());
                word::pass_to(word, next)
            }
            Until::Uncleaned | Until::UncalledFor(..) if living.is_empty() && minds_few => {
                return Ok(Found::Apart);
            }
            Until::Uncalled | Until::UncalledFor(..) if living.is_empty() => word::HUSH,
            Until::Deserted if word.below() as usize > living.len() => {
                word::recount(word, living.len() as u32)
            }
            // They were writers when one above began to wait for them, and let readers in.
            Until::Deserted if half == Half::Writers && shares && all_share(&living) => {
                return Ok(Found::Apart);
            }
            Until::Unread(mask) => {
                let are_fewer = usize::from(word.in_line()) > living.len();
                let recount = word::recount_here(word, living.len() as u16);
                // Later ones see the bits that this client has taken.
                living.retain(|other| other.reads(node) & mask != 0);
                if are_fewer {
                    self.change(site, addr, recount).await?;
                }
                return Ok(match living.is_empty() {
                    false => Found::Living(living, awaited),
                    true if are_fewer && mask == ALL => Found::Mended,
                    // Whether some have left since or are dead: they read other units.
                    true => Found::Apart,
                });
            }
            Until::Free(mask) if owned_bits(&living, node) & mask & seen != mask & seen => {
                return self.look_for_dead_bits(site, living, node, seen & mask).await;
            }
            _ => return Ok(Found::Living(living, awaited)),
        };
        self.change(site, addr, op).await?;
        Ok(Found::Mended)
    }

    /// Mends a word, unless it has changed.
    async fn change<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        addr: Addr,
        op: MaskedCas<u64>,
    ) -> Result<(), Fault> {
        site.endpoint.verb(Verb::MaskedCas64 { addr, op }).await?;
        if word::swapped(&op, site.endpoint.old() as u64) {
            has_mended(site);
        }
        Ok(())
    }

    /// Whether nobody has some of these bits of a leaf, which were taken: an owner may have left
    /// since.
    async fn look_for_dead_bits<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        living: Vec<Living>,
        leaf: Node,
        taken: u64,
    ) -> Result<Found, Fault> {
        site.endpoint.read64(self.plan.word(site.lock, leaf, Half::Writers)).await?;
        let still = site.endpoint.old() as u64 & taken;
        let still = still & !self.owned(site, living, leaf).await?;
        Ok(if still == 0 { Found::Mended } else { Found::DeadBits })
    }

    /// The bits of this leaf that these have, the living. One that asks for some may have been
    /// given them just now, and says so soon: so those are asked once more.
    async fn owned<E: WideAtomics>(
        &self,
        site: &Site<'_, E>,
        mut living: Vec<Living>,
        leaf: Node,
    ) -> Result<u64, Fault> {
        if living.iter().any(|other| other.asks_for(leaf)) {
            living = self::living(site, self.plan, site.lock).await?;
        }
        Ok(owned_bits(&living, leaf))
    }
}

/// Has a waiter look around before long that has what others may wait for, where that costs little.
/// Whether it does.
fn looks_often<E: WideAtomics>(
    site: &Site<'_, E>,
    course: &Course,
    stand: Stand,
    doubt: &mut Doubt,
) -> bool {
    let has_few_places = || site.endpoint.occupied().nth(PLACES_FEW).is_none();
    let is_often = course.may_be_awaited(stand.claims) && has_few_places();
    if is_often {
        doubt.trust_at_most(TRUST_NS_MAX);
    }
    is_often
}

/// Whether all of these read alone.
fn all_share(living: &[Living]) -> bool {
    living.iter().all(Living::shares)
}

/// Whether there are some, and none of their records is about to change.
fn are_sure(living: &[Living]) -> bool {
    !living.is_empty() && !living.iter().any(Living::is_about_to_change)
}

/// The bits of this leaf that these have, or may have but for those that ask for them.
pub(super) fn owned_bits(living: &[Living], leaf: Node) -> u64 {
    let owners = living.iter().filter(|other| !other.asks_for(leaf));
    owners.fold(0, |bits, other| bits | other.bits(leaf))
}

/// The bits of this leaf that these have, or may have.
pub(super) fn bits_of(living: &[Living], leaf: Node) -> u64 {
    living.iter().fold(0, |bits, other| bits | other.bits(leaf))
}

pub(super) fn has_mended<E: WideAtomics>(site: &Site<'_, E>) {
    site.peer_died(EndpointId::NOBODY);
    site.event(Event::Repaired { lock: site.lock, generation: 0, dead_readers: 0 });
}
