//! A memory node's NIC: an in-order issue pipe, a window of atomics, one line at a time.
//!
//! Verbs enter the pipe in the order of their arrival. An atomic also needs a slot of the window,
//! and where none is free the whole pipe stops. Atomics on one 64-byte line run one after another,
//! and each holds its slot until it is done; reads and writes wait for no line. A verb takes effect
//! when its line begins to serve it. The model assumes nothing about protocols and never looks at
//! memory.
//!
//! "Calibrated" below means on a number that ShiftLock (FAST'25) publishes; "assumed" means chosen
//! in the usual range of such hardware, before or while looking at its tables.

use farlock_fabric::Nanos;

use crate::history::Kind;
use crate::oracle::log2;

/// Bytes in a line: atomics on the same one run one after another.
pub(crate) const LINE_BYTES: u64 = 64;

/// What a NIC and its network take. Times are nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nic {
    /// Round trip of an unloaded 8-byte atomic. Calibrated: 278.3 K lock cycles/s of one client.
    pub rtt8_ns: u32,
    /// Round trip of an unloaded 16-byte atomic. Calibrated: Table 3, 5 clients, write-intensive.
    pub rtt16_ns: u32,
    /// Round trip of an unloaded read or write. Assumed.
    pub read_rtt_ns: u32,
    /// What an atomic holds the issue pipe for. Assumed.
    pub atomic_issue_ns: u32,
    /// What a read or write holds the issue pipe for. Calibrated: 32 M verbs/s.
    pub read_issue_ns: u32,
    /// What each 64-byte line of a read or write beyond its first adds to that: 100 Gb/s. Assumed.
    pub line_issue_ns: u32,
    /// Atomics in progress at most, 1 to 1,024. Assumed: the usual `max_rd_atomic`.
    pub window: u16,
    /// What an 8-byte atomic holds its line for. Calibrated: 15.5 K/s with 99.4 % retries.
    pub line8_ns: u32,
    /// What a 16-byte atomic holds its line for. Calibrated: the read-intensive plateau.
    pub line16_ns: u32,
    /// From posting a message to its arrival. Assumed: half a round trip.
    pub message_ns: u32,
    /// From posting a message to the sender's completion. Assumed: round trip and connecting.
    pub message_rtt_ns: u32,
    /// Mean of the exponential delay added to each verb's and message's way. Assumed; insensitive.
    pub jitter_mean_ns: u32,
    /// Added to each round trip per doubling of endpoints beyond five. Zero in the strict model; 80
    /// fits the growth of Table 3's latencies, whose cause is not known.
    pub rtt_per_doubling_ns: u32,
}

impl Default for Nic {
    fn default() -> Self {
        Self {
            rtt8_ns: 1_700,
            rtt16_ns: 2_000,
            read_rtt_ns: 1_800,
            atomic_issue_ns: 20,
            read_issue_ns: 31,
            line_issue_ns: 5,
            window: 16,
            line8_ns: 193,
            line16_ns: 285,
            message_ns: 800,
            message_rtt_ns: 2_300,
            jitter_mean_ns: 30,
            rtt_per_doubling_ns: 0,
        }
    }
}

impl Nic {
    /// The unloaded round trip of a verb, without jitter, among so many endpoints.
    #[inline]
    pub(crate) fn rtt_ns(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Read | Kind::Write => self.read_rtt_ns,
            Kind::Cas64 | Kind::Faa64 | Kind::MaskedCas64 | Kind::MaskedFaa64 => self.rtt8_ns,
            Kind::MaskedCas128 | Kind::MaskedFaa128 => self.rtt16_ns,
            Kind::Send => self.message_rtt_ns,
        }
    }

    /// What so many endpoints add to each round trip.
    pub(crate) fn crowding_ns(&self, endpoints: u16) -> u32 {
        let doublings = log2(u64::from(endpoints.max(5))) - log2(5);
        ((u64::from(self.rtt_per_doubling_ns) * doublings) >> 16) as u32
    }

    /// How long a read or write of so many bytes holds the pipe.
    #[inline]
    fn issue_ns(&self, bytes: u64) -> Nanos {
        let more_lines = bytes.saturating_sub(1) / LINE_BYTES;
        u64::from(self.read_issue_ns) + more_lines * u64::from(self.line_issue_ns)
    }
}

/// Machines on which clients run, several on each, whose verbs leave through one NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machines {
    /// How many endpoints each has, in the order of their indices.
    pub endpoints_each: u16,
    /// What a verb or message holds its NIC for, with its completion.
    pub verb_ns: u32,
    /// Whether the first machine's NIC is that of the first memory node as well, the second's that
    /// of the second, and so on: what leaves and what arrives wait for one pipe.
    pub have_nodes: bool,
}

/// Their NICs at work: from when on each is free.
pub(crate) struct MachinesState {
    machines: Option<Machines>,
    free: Vec<Nanos>,
}

impl MachinesState {
    pub(crate) fn new(machines: Option<Machines>, endpoints: u16) -> Self {
        let of = |machines: Machines| {
            assert!(machines.endpoints_each > 0, "a machine has endpoints");
            usize::from(endpoints / machines.endpoints_each) + 1
        };
        Self { machines, free: vec![0; machines.map_or(0, of)] }
    }

    /// The memory node whose NIC is that of this endpoint's machine, if there are so many nodes.
    #[inline]
    pub(crate) fn node_of(&self, endpoint: u16) -> Option<usize> {
        let machines = self.machines.filter(|machines| machines.have_nodes)?;
        Some(usize::from((endpoint - 1) / machines.endpoints_each))
    }

    /// How much later than now so many verbs of this endpoint are on the wire than without others.
    /// They leave by the NIC of a memory node, if there is one on its machine.
    #[inline]
    pub(crate) fn leave(
        &mut self,
        node: Option<&mut NicState>,
        now: Nanos,
        endpoint: u16,
        verbs: u16,
    ) -> Nanos {
        let Some(machines) = self.machines else { return 0 };
        let own = &mut self.free[usize::from((endpoint - 1) / machines.endpoints_each)];
        let free = node.map_or(own, |nic| &mut nic.pipe_free);
        let begun = now.max(*free);
        *free = begun + u64::from(machines.verb_ns) * u64::from(verbs);
        begun - now
    }
}

/// A NIC at work.
pub(crate) struct NicState {
    /// When the pipe can issue the next verb.
    pipe_free: Nanos,
    /// The slots of the window, as a ring from `first` on, in the order in which they are free
    /// again. Only lines in the window can be busy, so this is all there is to know of lines.
    window: Box<[WindowSlot]>,
    first: usize,
    /// By slot, 32 bits of its line: most often they tell that a line is not in the window, and
    /// several are compared at once.
    tags: Box<[u32]>,
}

/// Which line the last atomic of a slot served, and until when.
#[derive(Clone, Copy, Default)]
struct WindowSlot {
    line: u64,
    until: Nanos,
}

impl NicState {
    pub(crate) fn new(nic: &Nic) -> Self {
        assert!((1..=1024).contains(&nic.window), "a window has 1 to 1,024 slots");
        let slots = usize::from(nic.window);
        let window = vec![WindowSlot::default(); slots].into();
        Self { pipe_free: 0, window, first: 0, tags: vec![0; slots].into() }
    }

    /// A read or write of so many bytes arrives; returns when it is served.
    #[inline]
    pub(crate) fn admit_transfer(&mut self, nic: &Nic, now: Nanos, bytes: u64) -> Nanos {
        let start = now.max(self.pipe_free);
        self.pipe_free = start + nic.issue_ns(bytes);
        start
    }

    /// An atomic on this line arrives; returns when it takes effect.
    #[inline]
    pub(crate) fn admit_atomic(&mut self, nic: &Nic, now: Nanos, line: u64, wide: bool) -> Nanos {
        let line_free = if self.may_be_busy(line) { self.line_free(line) } else { 0 };
        let issued = now.max(self.pipe_free).max(self.window[self.first].until);
        self.pipe_free = issued + u64::from(nic.atomic_issue_ns);
        let start = issued.max(line_free);
        let hold = if wide { nic.line16_ns } else { nic.line8_ns };
        self.occupy(WindowSlot { line, until: start + u64::from(hold) });
        start
    }

    /// Whether this line may be in the window. Looks at all slots, without a branch.
    #[inline]
    fn may_be_busy(&self, line: u64) -> bool {
        self.tags.iter().fold(false, |found, &tag| found | (tag == line as u32))
    }

    /// When no atomic of the window is on this line any more.
    #[inline(never)]
    fn line_free(&self, line: u64) -> Nanos {
        let same_line = self.window.iter().filter(|slot| slot.line == line);
        same_line.fold(0, |free, slot| free.max(slot.until))
    }

    /// Takes the slot that is free first, and puts it where it belongs in the order: most often at
    /// the end.
    #[inline]
    fn occupy(&mut self, taken: WindowSlot) {
        let slots = self.window.len();
        let before = |place: usize| if place == 0 { slots - 1 } else { place - 1 };
        let (first, mut place) = (self.first, self.first);
        self.first = if first + 1 == slots { 0 } else { first + 1 };
        while before(place) != first && self.window[before(place)].until > taken.until {
            self.window[place] = self.window[before(place)];
            self.tags[place] = self.tags[before(place)];
            place = before(place);
        }
        self.window[place] = taken;
        self.tags[place] = taken.line as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_nic_serves_at_once() {
        let (nic, mut state) = (Nic::default(), NicState::new(&Nic::default()));
        assert_eq!(state.admit_atomic(&nic, 1000, 7, false), 1000);
        assert_eq!(state.admit_transfer(&nic, 5000, 8), 5000);
    }

    #[test]
    fn the_pipe_issues_one_verb_after_another() {
        let (nic, mut state) = (Nic::default(), NicState::new(&Nic::default()));
        let starts: Vec<_> = (0..4).map(|_| state.admit_transfer(&nic, 1000, 8)).collect();
        assert_eq!(starts, [1000, 1031, 1062, 1093]);
        assert_eq!(state.admit_atomic(&nic, 1000, 1, false), 1124);
        assert_eq!(state.admit_atomic(&nic, 1000, 2, false), 1144);
    }

    #[test]
    fn a_page_holds_the_pipe_for_all_its_lines() {
        let (nic, mut state) = (Nic::default(), NicState::new(&Nic::default()));
        state.admit_transfer(&nic, 1000, 4096);
        assert_eq!(state.admit_transfer(&nic, 1000, 8), 1000 + 31 + 63 * 5);
    }

    #[test]
    fn atomics_on_one_line_run_one_after_another() {
        let (nic, mut state) = (Nic::default(), NicState::new(&Nic::default()));
        assert_eq!(state.admit_atomic(&nic, 1000, 7, false), 1000);
        assert_eq!(state.admit_atomic(&nic, 1000, 7, true), 1193);
        assert_eq!(state.admit_atomic(&nic, 1000, 7, false), 1193 + 285);
        assert_eq!(state.admit_atomic(&nic, 1000, 8, false), 1060, "another line is free");
    }

    #[test]
    fn a_full_window_stops_the_whole_pipe() {
        let nic = Nic { window: 2, ..Nic::default() };
        let mut state = NicState::new(&nic);
        state.admit_atomic(&nic, 1000, 7, false);
        assert_eq!(state.admit_atomic(&nic, 1000, 7, false), 1193);
        // The first slot is free again at 1,193: until then nothing is issued, not even a read.
        assert_eq!(state.admit_atomic(&nic, 1040, 9, false), 1193);
        assert_eq!(state.admit_transfer(&nic, 1040, 8), 1213);
    }

    #[test]
    fn clients_of_one_machine_wait_for_its_nic_and_others_do_not() {
        let machines = Some(Machines { endpoints_each: 2, verb_ns: 10, have_nodes: false });
        let mut state = MachinesState::new(machines, 4);
        assert_eq!(state.leave(None, 100, 1, 3), 0);
        assert_eq!((state.leave(None, 110, 2, 1), state.leave(None, 110, 3, 1)), (20, 0));
        assert_eq!(state.leave(None, 140, 1, 1), 0, "it is free again");
        assert_eq!(MachinesState::new(None, 4).leave(None, 100, 1, 3), 0);
    }

    #[test]
    fn what_leaves_a_machine_with_a_node_waits_behind_what_arrives_there() {
        let nic = Nic::default();
        let machines = Some(Machines { endpoints_each: 2, verb_ns: 10, have_nodes: true });
        let (mut state, mut node) = (MachinesState::new(machines, 4), NicState::new(&nic));
        assert_eq!([1, 2, 3].map(|endpoint| state.node_of(endpoint)), [Some(0), Some(0), Some(1)]);
        node.admit_transfer(&nic, 1000, 8);
        assert_eq!(state.leave(Some(&mut node), 1000, 1, 2), 31);
        assert_eq!(node.admit_transfer(&nic, 1000, 8), 1051, "and the other way round");
    }

    #[test]
    fn more_endpoints_take_longer_where_that_is_switched_on() {
        let nic = Nic { rtt_per_doubling_ns: 80, ..Nic::default() };
        assert_eq!(nic.crowding_ns(3), 0);
        assert!((158..=161).contains(&nic.crowding_ns(20)), "{}", nic.crowding_ns(20));
        assert_eq!(Nic::default().crowding_ns(240), 0);
    }
}
