//! What is played: how many clients acquire how often in which mode, and which faults there are.
//!
//! A scenario together with a trail is one run: a [`Line`](super::line::Line).

use anyhow::ensure;
use farlock_fabric::Nanos;
use farlock_locks::{Mode, Tuning};
use farlock_sim::{Choice, Oracle, Outcome, Ratio, Seeded, Weakness};

use crate::faults::{Declares, Faults};
use crate::mishap::{Mishap, RATE_PPB_MAX, Rate, What};
use crate::tune::{To, Tune};
use crate::wish::Wish;

/// The most clients of a scenario.
pub const CLIENTS_MAX: u16 = 16;
/// The most acquisitions of each.
pub const ACQUISITIONS_MAX: u16 = 64;
/// Of so many scenarios one has a client that gives up, one another that dies.
const CANCEL_ONE_IN: u32 = 4;
const DEATH_ONE_IN: u32 = 3;
/// Of so many scenarios one begins shortly before counts wrap: at most so many acquisitions before.
const NEAR_WRAP_ONE_IN: u32 = 3;
const NEAR_WRAP_MAX: u32 = 8;
/// Among how many of its first verbs a client dies.
const DEATH_VERBS: u32 = 24;
/// The most locks of a scenario: two bits of a number tell which.
pub const LOCKS_MAX: u16 = 4;
/// The most parts into which ranges cut the units of a lock.
pub const PARTS_MAX: u16 = 8;
/// The most tasks of a client that share an endpoint.
pub const TASKS_MAX: u16 = 4;
/// How long holders stay who are visited, in nanoseconds: within that who withdraws is gone.
pub const VISITED_NS: Nanos = 1_000_000;
/// How long holders stay beside changes of parameters, in nanoseconds: longer than owners wait.
const TUNED_NS: Nanos = 100_000;
/// The most times that what is given up was polled before.
const POLLS_MAX: u32 = 8;

/// A run with more events is a livelock, and so is a visit with as many after it. Repairs of a few
/// clients take some hundred.
pub const EVENTS_MAX: u64 = 20_000;

/// A client dies when it posts its verb with this number, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Death {
    /// Who.
    pub who: u16,
    /// At which of its verbs.
    pub verb: u64,
    /// What becomes of the verb.
    pub outcome: Outcome,
}

/// A client gives up after polling an acquisition, what it does while it holds, or its release, so
/// many times together. What it gave up it settles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cancel {
    /// Who.
    pub who: u16,
    /// Which of its acquisitions.
    pub round: u16,
    /// After how many polls.
    pub polls: u32,
}

/// What is played.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scenario {
    /// The lock, or the exhibit of the museum.
    pub subject: String,
    /// How many clients.
    pub clients: u16,
    /// How many acquisitions of each.
    pub acquisitions: u16,
    /// How many locks.
    pub locks: u16,
    /// So many clients, one after the other, are tasks at one endpoint, which live and die
    /// together, where the subject does not say how many.
    pub tasks: u16,
    /// Two bits for each acquisition, client by client: at which lock it is.
    pub aims: u64,
    /// A bit for each acquisition in whose hold the next lock is acquired and released as well:
    /// a client that holds several took them in the order of their numbers.
    pub nests: u64,
    /// A bit for each of those that is shared.
    pub nested_shared: u64,
    /// If there are any: which units are wanted of a lock that is had in parts, client by client,
    /// in every acquisition; the scenario's locks are what these cut the units into.
    pub ranges: Vec<Wish>,
    /// Who acquires a lock within the hold of another one does so in a transaction.
    pub transacts: bool,
    /// A bit for each acquisition that is shared: client by client, each from its first on.
    pub shared: u64,
    /// A bit for each acquisition, in the same order, that is to update. If it is not shared, it is
    /// upgraded, and writes.
    pub updates: u64,
    /// A bit for each acquisition, in the same order, whose hold is turned into one in the other
    /// mode, if it can be, and back.
    pub converts: u64,
    /// A bit for each acquisition, in the same order, whose hold is divided, and let go of by and
    /// by.
    pub divides: u64,
    /// A client that holds units and is to acquire others keeps none that it does not want, and
    /// takes none.
    pub refines: bool,
    /// A bit for each acquisition, in the same order, that is a try: granted at once or not at all.
    pub tries: u64,
    /// What clients do instead of some of their acquisitions: they change the lock's parameters.
    pub tunes: Vec<Tune>,
    /// A newcomer tries the lock whenever a holder has stayed until nothing else could happen.
    pub visited: bool,
    /// Who gives up does not settle, but lets go of its endpoint, where its lock outlives that.
    pub quits: bool,
    /// A read or write is torn once in so many times; never if 0.
    pub torn: u32,
    /// A read in a chain is overtaken once in so many times; never if 0.
    pub overtaken: u32,
    /// Intervals of waits may end at any time.
    pub hasty: bool,
    /// Completions are events of their own.
    pub slow: bool,
    /// Who dies: one client or several, a later one often while it repairs what an earlier one
    /// left behind.
    pub deaths: Vec<Death>,
    /// So many clients more may die, each at any verb, as the schedule says.
    pub anywhere: u32,
    /// Who gives up.
    pub cancel: Option<Cancel>,
    /// So many times more a client may give up, whenever it waits, as the schedule says.
    pub cancel_anywhere: u32,
    /// Exclusive holders write to a register outside, with their tokens, where the lock has them.
    pub fenced: bool,
    /// Holders read and write two words that the lock protects, and it is recorded what they see.
    pub recorded: bool,
    /// So many nanoseconds every holder stays inside, besides a read.
    pub hold_ns: Nanos,
    /// What else befalls clients at their verbs.
    pub mishaps: Vec<Mishap>,
    /// What may befall anybody besides, at any verb as the schedule says, so many times.
    pub mishaps_anywhere: Vec<(u32, What)>,
    /// How clients' clocks go.
    pub clocks: Vec<Rate>,
    /// So many acquisitions and the lock's counts wrap; 0: they begin at zero.
    pub near_wrap: u16,
}

impl Scenario {
    /// The same without one client to which nothing happens; `None` if something does.
    pub fn without(&self, client: u16) -> Option<Self> {
        let mut fewer = self.clone();
        fewer.clients -= 1;
        let deaths = fewer.deaths.iter_mut().map(|death| &mut death.who);
        let mishaps = fewer.mishaps.iter_mut().map(|mishap| &mut mishap.who);
        let clocks = fewer.clocks.iter_mut().map(|clock| &mut clock.who);
        let cancel = fewer.cancel.iter_mut().map(|cancel| &mut cancel.who);
        let tunes = fewer.tunes.iter_mut().map(|tune| &mut tune.who);
        for who in deaths.chain(mishaps).chain(clocks).chain(cancel).chain(tunes) {
            if *who == client {
                return None;
            }
            *who -= u16::from(*who > client);
        }
        let rounds = u32::from(self.acquisitions);
        let without = |mask: &mut u64, bits: u32| {
            let below = 1_u64.checked_shl(u32::from(client) * rounds * bits).unwrap_or(0);
            let (below, above) = (below.wrapping_sub(1), mask.checked_shr(rounds * bits));
            *mask = *mask & below | above.unwrap_or(0) & !below;
        };
        let turned = [&mut fewer.converts, &mut fewer.divides];
        turned.into_iter().for_each(|mask| without(mask, 1));
        let ones = [&mut fewer.shared, &mut fewer.updates, &mut fewer.tries];
        let nested = [&mut fewer.nests, &mut fewer.nested_shared];
        ones.into_iter().chain(nested).for_each(|mask| without(mask, 1));
        without(&mut fewer.aims, 2);
        if !fewer.ranges.is_empty() {
            fewer.ranges.remove(client.into());
            fewer.locks = fewer.bounds().len() as u16 - 1;
        }
        Some(fewer)
    }

    /// Nothing goes wrong, and all acquisitions are exclusive.
    pub fn plain(subject: &str, clients: u16, acquisitions: u16) -> Self {
        Self {
            subject: subject.to_owned(),
            clients,
            acquisitions,
            locks: 1,
            tasks: 1,
            ..Self::default()
        }
    }

    /// Whatever a client acquires is what it wishes, of a lock that is had in parts.
    ///
    /// # Errors
    /// They are none, or cut the units into too many parts.
    pub fn of_ranges(
        subject: &str,
        acquisitions: u16,
        ranges: &[impl Clone + Into<Wish>],
    ) -> anyhow::Result<Self> {
        let mut scenario = Self::plain(subject, ranges.len() as u16, acquisitions);
        scenario.ranges = ranges.iter().cloned().map(Into::into).collect();
        let parts = scenario.bounds().len().saturating_sub(1) as u16;
        ensure!(
            (1..=PARTS_MAX).contains(&parts),
            "ranges cut the units into 1 to {PARTS_MAX} parts, not {parts}"
        );
        scenario.locks = parts;
        Ok(scenario)
    }

    /// Where ranges begin and end, each place once: what is between two of them is one part, though
    /// nobody may want it.
    pub fn bounds(&self) -> Vec<u32> {
        let ranges = self.ranges.iter().flat_map(Wish::ranges);
        let mut bounds: Vec<u32> = ranges.flat_map(|range| [range.start, range.end]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        bounds
    }

    /// Whether there is one lock, and every client has an endpoint of its own, if its subject does
    /// not want it otherwise.
    pub fn is_plain(&self) -> bool {
        self.locks == 1 && self.tasks == 1
    }

    /// Whether clients acquire within a hold.
    pub fn nests_holds(&self) -> bool {
        // Ranges say themselves what is acquired within them.
        self.ranges.is_empty() && self.nests != 0 || self.nests_ranges()
    }

    /// Whether a client acquires units of a lock while it holds others.
    pub fn nests_ranges(&self) -> bool {
        self.ranges.iter().any(|wish| wish.within.is_some())
    }

    /// Whether waits for words to change end by that alone: nobody dies, is stopped, stays inside,
    /// tries, lets go of its endpoint, or waits with what it holds.
    pub fn is_undisturbed(&self) -> bool {
        let is_deadly = self.anywhere > 0 || !self.deaths.is_empty();
        let is_calm = !is_deadly && self.all_mishaps().next().is_none();
        is_calm && self.hold_ns == 0 && self.tries == 0 && !self.quits && !self.nests_ranges()
    }

    /// How many acquisitions there are, of all clients.
    pub fn all(&self) -> u32 {
        u32::from(self.clients) * u32::from(self.acquisitions)
    }

    /// How often clients give up, at most.
    pub fn cancels(&self) -> u32 {
        u32::from(self.cancel.is_some()) + self.cancel_anywhere
    }

    /// Whether a client may die, or end since it does not know what became of a verb.
    pub fn is_deadly(&self) -> bool {
        let ends = |what| matches!(what, What::Lost(_) | What::Restart(_));
        let quits = self.quits && self.may_give_up();
        quits || !self.deaths.is_empty() || self.anywhere > 0 || self.all_mishaps().any(ends)
    }

    /// Whether a client may give up.
    pub fn may_give_up(&self) -> bool {
        self.cancel.is_some() || self.cancel_anywhere > 0
    }

    /// Whether anything befalls clients at their verbs besides death.
    pub fn has_mishaps(&self) -> bool {
        !self.mishaps.is_empty() || !self.mishaps_anywhere.is_empty()
    }

    /// Everything that may befall clients at their verbs besides death.
    fn all_mishaps(&self) -> impl Iterator<Item = What> {
        let anywhere = self.mishaps_anywhere.iter().map(|&(_, what)| what);
        self.mishaps.iter().map(|mishap| mishap.what).chain(anywhere)
    }

    /// How often the memory node restarts, at most.
    pub fn restarts(&self) -> u16 {
        let is_restart = |what: &What| matches!(what, What::Restart(_));
        let named = self.mishaps.iter().filter(|mishap| is_restart(&mishap.what)).count() as u32;
        let anywhere = self.mishaps_anywhere.iter().filter(|(_, what)| is_restart(what));
        (named + anywhere.map(|(times, _)| times).sum::<u32>()) as u16
    }

    /// Whether a client may be paused.
    pub fn may_pause(&self) -> bool {
        self.all_mishaps().any(|what| matches!(what, What::Pause(_))) || self.may_stop()
    }

    /// Whether a client may be stopped for good.
    pub fn may_stop(&self) -> bool {
        self.all_mishaps().any(|what| matches!(what, What::Stop | What::StopInWait))
    }

    /// Whether judges look at more than exclusion, order and progress.
    pub fn is_watched(&self) -> bool {
        self.tries != 0 || self.visited || self.may_stop()
    }

    /// Whether clocks go as the contract says.
    pub fn is_timely(&self) -> bool {
        self.clocks.iter().all(|clock| clock.ppb.abs() <= RATE_PPB_MAX)
            && !self.all_mishaps().any(|what| matches!(what, What::Jump(_)))
    }

    /// Every second acquisition is shared: some of each client, where it makes more than one.
    pub fn mixed(mut self) -> Self {
        self.shared = (0..self.all().min(64))
            .filter(|n| {
                (n / u32::from(self.acquisitions) + n % u32::from(self.acquisitions)) % 2 == 1
            })
            .fold(0, |mask, bit| mask | 1 << bit);
        self
    }

    /// Whatever every second client acquires is to update.
    pub fn updating(mut self) -> Self {
        self.updates = (0..self.all().min(64))
            .filter(|n| (n / u32::from(self.acquisitions)).is_multiple_of(2))
            .fold(0, |mask, bit| mask | 1 << bit);
        self
    }

    /// So many locks, at which clients begin one after the other; within each hold but of the last
    /// lock the next is acquired as well.
    pub fn at_locks(mut self, locks: u16) -> Self {
        self.locks = locks;
        let aims = (0..self.all().min(32)).map(|n| {
            let rounds = u32::from(self.acquisitions);
            (n, u64::from((n / rounds + n % rounds) % u32::from(locks)))
        });
        self.aims = aims.fold(0, |mask, (n, at)| mask | at << (2 * n));
        self.nests = if locks > 1 { u64::MAX } else { 0 };
        self.nested_shared = self.shared & self.nests;
        self
    }

    /// Whatever the last client acquires is a try, and shared if `shares`.
    pub fn trying(mut self, shares: bool) -> Self {
        let rounds = u32::from(self.acquisitions);
        let before = self.all() - rounds;
        self.tries = (before..self.all().min(64)).fold(0, |mask, bit| mask | 1 << bit);
        self.shared |= if shares { self.tries } else { 0 };
        self
    }

    /// Instead of its first acquisitions the last client changes the lock's parameters to these,
    /// one after the other.
    pub fn tuning(mut self, changes: &[To]) -> Self {
        let who = self.clients - 1;
        self.tunes = (0..).zip(changes).map(|(round, &to)| Tune { who, round, to }).collect();
        self
    }

    /// Whatever anybody acquires is a try.
    pub fn all_trying(self) -> Self {
        Self { tries: u64::MAX >> (64 - self.all().min(64)), ..self }
    }

    /// This scenario with modes and faults drawn anew, each fault switched on or off.
    pub fn draw(&mut self, oracle: &mut Seeded, mut faults: Faults) {
        if !self.is_plain() {
            // Who is stopped, and who visits, looks at one lock and at clients of one task.
            let tries = faults.declares.tries && self.tasks == 1;
            faults.declares = Declares { tries, ..Declares::NOTHING };
            faults.updates &= self.tasks == 1;
        }
        let mut draw = |n| oracle.pick(Choice::Event, n);
        let frequency = |draw: u32| [0, 0, 0, 2, 4, 16][draw as usize];
        self.shared = match draw(4) {
            0 => 0,
            _ => u64::from(draw(u32::MAX)) & u64::from(draw(u32::MAX)) | u64::from(draw(1 << 8)),
        };
        (self.torn, self.overtaken) = (frequency(draw(6)), frequency(draw(6)));
        (self.hasty, self.slow) = (draw(2) == 1, draw(2) == 1);
        let clients = self.clients;
        let mut death = |dies: bool| {
            let dies = dies && draw(DEATH_ONE_IN) == 0;
            dies.then(|| Death {
                who: draw(clients.into()) as u16,
                verb: draw(DEATH_VERBS).into(),
                outcome: Outcome::ALL[draw(3) as usize],
            })
        };
        let first = death(faults.deaths);
        let second = death(first.is_some());
        self.deaths = first.into_iter().chain(second).collect();
        self.cancel = (faults.cancels && draw(CANCEL_ONE_IN) == 0).then(|| Cancel {
            who: draw(self.clients.into()) as u16,
            round: draw(self.acquisitions.into()) as u16,
            polls: 1 + draw(POLLS_MAX),
        });
        self.draw_mishaps(oracle, &faults);
        let mut draw = |n| oracle.pick(Choice::Event, n);
        self.hold_ns = if faults.holds { faults.lease_ns / 2 * Nanos::from(draw(2)) } else { 0 };
        self.near_wrap = match draw(NEAR_WRAP_ONE_IN) {
            0 => 1 + draw(NEAR_WRAP_MAX) as u16,
            _ => 0,
        };
        // A hold that ends by itself protects by its token alone.
        (self.fenced, self.recorded) = (draw(2) == 1, draw(2) == 1 && !faults.holds);
        // What a restart leaves of the protected words is no hold's doing.
        self.recorded &= self.restarts() == 0;
        let mut draw = |n| oracle.pick(Choice::Event, n);
        self.updates = if faults.updates && draw(2) == 1 { draw(u32::MAX).into() } else { 0 };
        self.draw_declared(oracle, faults);
        self.draw_locks(oracle);
        let may_transact = self.locks > 1 && self.tasks == 1 && !faults.holds;
        self.transacts = may_transact && oracle.pick(Choice::Event, 3) == 0;
        // Of who is in a transaction the judge of tries does not know what it holds already.
        self.tries = if self.transacts { 0 } else { self.tries };
        self.draw_conversions(oracle, faults);
        self.draw_tunes(oracle, faults);
        // Who is late for others begins anew, without end where polls come between all its verbs,
        // of which each takes longer than others wait. So it is beside a manager that polls.
        let is_calm = self.is_undisturbed() && self.tunes.is_empty();
        self.hasty &= !faults.timely || is_calm;
    }

    /// What befalls clients at their verbs, and how their clocks go.
    fn draw_mishaps(&mut self, oracle: &mut Seeded, faults: &Faults) {
        (self.mishaps, self.clocks) = match faults.mishaps {
            true => {
                let mishaps = Mishap::draw(self.clients, faults, oracle);
                (mishaps, Rate::draw(self.clients, faults.timely, oracle))
            }
            false => (Vec::new(), Vec::new()),
        };
    }

    /// Which holds are converted, and which are divided.
    fn draw_conversions(&mut self, oracle: &mut Seeded, faults: Faults) {
        let mut draw = |n| oracle.pick(Choice::Event, n);
        self.converts = if faults.converts && draw(2) == 1 { draw(u32::MAX).into() } else { 0 };
        self.divides = if faults.divides && draw(2) == 1 { draw(u32::MAX).into() } else { 0 };
    }

    /// Which acquisitions are changes of the lock's parameters instead. Beside some of them holders
    /// stay for longer than owners wait.
    fn draw_tunes(&mut self, oracle: &mut Seeded, faults: Faults) {
        self.tunes = match faults.tunes {
            true => Tune::draw(self.clients, self.acquisitions, oracle),
            false => Vec::new(),
        };
        if !self.tunes.is_empty() && oracle.pick(Choice::Event, 2) == 1 {
            self.hold_ns = TUNED_NS;
        }
    }

    /// At which locks acquisitions are.
    fn draw_locks(&mut self, oracle: &mut Seeded) {
        if self.locks < 2 {
            return;
        }
        let mut draw = || {
            let half = |oracle: &mut Seeded| u64::from(oracle.pick(Choice::Event, u32::MAX));
            half(oracle) << 32 | half(oracle)
        };
        (self.aims, self.nested_shared) = (draw(), draw());
        self.nests = draw();
    }

    /// What is played of those locks alone that say something of it.
    fn draw_declared(&mut self, oracle: &mut Seeded, faults: Faults) {
        let mut draw = |n| oracle.pick(Choice::Event, n);
        let says = faults.declares;
        let mask = |bits: u32| u64::from(bits) << 32 | u64::from(bits);
        self.tries = if says.tries && draw(2) == 1 { mask(draw(u32::MAX)) } else { 0 };
        let visited = (says.tries || says.withdraws) && !self.hasty && draw(2) == 1;
        self.visited = visited && self.is_plain();
        if self.visited {
            self.hold_ns = VISITED_NS;
        }
        self.quits = says.withdraws
            && !self.may_stop()
            && self.cancel.is_some()
            && faults.deaths
            && draw(4) == 0;
    }

    /// At which lock a client's `round`-th acquisition is.
    pub fn lock(&self, who: u16, round: u16) -> usize {
        let at = u32::from(who) * u32::from(self.acquisitions) + u32::from(round);
        let aim = self.aims.checked_shr(2 * at).unwrap_or(0) & 3;
        (aim % u64::from(self.locks)) as usize
    }

    /// The lock that is acquired within a client's `round`-th hold, and in which mode.
    pub fn nested(&self, who: u16, round: u16) -> Option<(usize, Mode)> {
        let at = self.lock(who, round) + 1;
        let is_nested = at < usize::from(self.locks) && self.is_set(self.nests, who, round);
        let shared = self.is_set(self.nested_shared, who, round);
        is_nested.then_some((at, if shared { Mode::Shared } else { Mode::Exclusive }))
    }

    /// In which mode a client acquires for the `round`-th time.
    pub fn mode(&self, who: u16, round: u16) -> Mode {
        if self.is_set(self.shared, who, round) { Mode::Shared } else { Mode::Exclusive }
    }

    /// Whether a client's `round`-th acquisition is to update.
    pub fn is_to_update(&self, who: u16, round: u16) -> bool {
        self.is_set(self.updates, who, round)
    }

    /// Whether a client converts what it holds after its `round`-th acquisition.
    pub fn converts(&self, who: u16, round: u16) -> bool {
        self.is_set(self.converts, who, round)
    }

    /// Whether a client divides what it holds after its `round`-th acquisition.
    pub fn divides(&self, who: u16, round: u16) -> bool {
        self.is_set(self.divides, who, round)
    }

    /// To what a client changes the lock's parameters instead of its `round`-th acquisition.
    pub fn tune(&self, who: u16, round: u16) -> Option<Tuning> {
        let tune = self.tunes.iter().find(|tune| (tune.who, tune.round) == (who, round));
        tune.map(|tune| tune.to.0)
    }

    /// Whether a client's `round`-th acquisition is a try.
    pub fn is_try(&self, who: u16, round: u16) -> bool {
        self.is_set(self.tries, who, round)
    }

    fn is_set(&self, mask: u64, who: u16, round: u16) -> bool {
        let bit = u32::from(who) * u32::from(self.acquisitions) + u32::from(round);
        bit < 64 && mask >> bit & 1 != 0
    }

    /// How often a client is to poll in its `round`-th acquisition and release before it gives up.
    pub fn polls(&self, who: u16, round: u16) -> Option<u32> {
        let cancel = self.cancel.filter(|cancel| cancel.who == who && cancel.round == round);
        cancel.map(|cancel| cancel.polls)
    }

    /// How weak the fabric is. Durations are least: in explored mode the order alone counts.
    pub fn weakness(&self) -> Weakness {
        let ratio = |of| if of == 0 { Ratio::NEVER } else { Ratio::one_in(of) };
        Weakness {
            torn: ratio(self.torn),
            overtaken: ratio(self.overtaken),
            detection_ns_min: 1,
            detection_ns_max: 1,
            ..Weakness::NONE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_to_which_nothing_happens_can_be_left_out() {
        let mut scenario = Scenario::plain("mcs", 4, 2);
        (scenario.shared, scenario.updates) = (0b11_01_10_00, 0b01_00_10_11);
        scenario.tries = scenario.updates;
        scenario.deaths = vec![Death { who: 2, verb: 7, outcome: Outcome::Late }];
        let without = |client| {
            let masks = |s: Scenario| {
                assert_eq!(s.tries, s.updates);
                (s.deaths[0].who, s.shared, s.updates)
            };
            scenario.without(client).map(masks)
        };
        assert_eq!(without(0), Some((1, 0b11_01_10, 0b01_00_10)));
        assert_eq!(without(1), Some((1, 0b11_01_00, 0b01_00_11)));
        assert_eq!(without(2), None);
        assert_eq!(without(3), Some((2, 0b01_10_00, 0b00_10_11)));
    }

    #[test]
    fn clients_begin_at_all_locks_and_go_on_to_the_next() {
        let scenario = Scenario::plain("mcs", 2, 2).mixed().at_locks(2);
        let holds = |who, round| (scenario.lock(who, round), scenario.nested(who, round));
        assert_eq!(holds(0, 0), (0, Some((1, Mode::Exclusive))));
        assert_eq!([holds(0, 1), holds(1, 0)], [(1, None); 2]);
        assert_eq!(holds(1, 1), (0, Some((1, Mode::Exclusive))));
        let fewer = scenario.without(0).expect("nothing happens to it");
        assert_eq!((fewer.lock(0, 0), fewer.lock(0, 1)), (1, 0));
        assert_eq!(fewer.nested(0, 1), scenario.nested(1, 1));
    }

    #[test]
    fn a_mixed_scenario_has_readers_and_writers_of_each_client() {
        let scenario = Scenario::plain("shiftlock", 3, 2).mixed();
        for who in 0..3 {
            assert_ne!(scenario.mode(who, 0), scenario.mode(who, 1));
        }
    }
}
