//! A place in the table of endpoints: who is in it, whether it lives, whether it may go on.

use super::beacon::Beacon;
use super::lease::LeaseLine;
use super::primitive::{AtomicU32, AtomicU64, Ordering};
use crate::error::Fault;
use crate::home::{HOST_BYTES, Home};

crate::word! {
    /// Who is in a place. The incarnation changes with every claim, and comes back only in a later
    /// lap of the table.
    pub(super) struct Identity: u64 {
        /// Which user of the place; 0 before the first.
        INCARNATION incarnation: 16,
        /// What the place is doing: one of [`Phase`].
        PHASE phase: 8,
        /// Whether children of its owner keep it alive too.
        TETHERED tethered: 1,
        /// Whether its process registered for expedited barriers.
        EXPEDITED expedited: 1,
        /// Whether other threads than its keeper's execute its verbs, and a mark keeps the place.
        LANE lane: 1,
        /// In which lap of the table the place was claimed; wraps.
        LAP lap: 21,
        /// Whether a server keeps the place for a client elsewhere: see [`lease`](super::lease).
        LEASED leased: 1,
        /// How many servers have kept it for its owner, wrapping.
        SERVERS servers: 8,
        /// Zero.
        REST rest: 7,
    }
}

/// What a place is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Phase {
    /// Nobody is in it: never used, left, or its owner's death was noticed.
    Vacant = 0,
    /// An attacher is moving in and has the place's latch. Found by another holder of the latch, it
    /// is what a crashed attacher left behind.
    Claimed = 1,
    /// Its owner is in it, alive unless the beacon is out.
    Occupied = 2,
}

impl Identity {
    pub(super) fn is(self, phase: Phase, incarnation: u16) -> bool {
        self.phase() == phase as u64 && self.incarnation() == u64::from(incarnation)
    }

    pub(super) fn in_phase(self, phase: Phase) -> Self {
        self.with(Self::PHASE, phase as u64)
    }
}

/// A place. Four lines: what peers look at, what is displayed, what its owner looks at, and what
/// keeps it while no server does.
#[repr(C, align(64))]
pub(super) struct Place {
    pub(super) beacon: Beacon,
    identity: AtomicU64,
    pub(super) display: Display,
    pub(super) control: Control,
    pub(super) lease: LeaseLine,
}

const _: () = assert!(size_of::<Place>() == 256);

impl Place {
    #[inline]
    pub(super) fn identity(&self) -> Identity {
        Identity(self.identity.load(Ordering::Acquire))
    }

    /// Replaces the identity if nobody else has.
    pub(super) fn replace(&self, old: Identity, new: Identity) -> bool {
        self.identity.compare_exchange(old.0, new.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }
}

/// What `ls` shows. Nothing is decided by it.
#[repr(C, align(64))]
pub(super) struct Display {
    pub(super) pid: AtomicU32,
    /// 1 if the process is gone or out of reach, and only something it started keeps the endpoint
    /// alive. Of an endpoint that its process keeps itself, the tether tells.
    pub(super) orphaned: AtomicU32,
    /// The process's start, in clock ticks after boot, as `/proc/PID/stat` has it.
    pub(super) started_ticks: AtomicU64,
    /// When it attached, in nanoseconds of the boot clock.
    pub(super) since_ns: AtomicU64,
    /// A short name given by the user, as UTF-8, filled up with zeros.
    pub(super) label: [AtomicU64; LABEL_WORDS],
}

const LABEL_WORDS: usize = 5;
/// Bytes of a label; longer ones are cut.
pub const LABEL_BYTES: usize = LABEL_WORDS * 8;

impl Display {
    /// Stores a label, cut at a character boundary.
    pub(super) fn set_label(&self, label: &str) {
        store_text(&self.label, label);
    }

    /// The label; what is no UTF-8 is replaced, for its owner may be changing it.
    pub(super) fn label(&self) -> String {
        load_text(&self.label)
    }
}

/// Where the process lives that is displayed.
#[repr(C)]
pub(super) struct HomeDisplay {
    id: AtomicU64,
    /// As UTF-8, filled up with zeros.
    host: [AtomicU64; HOST_WORDS],
}

const HOST_WORDS: usize = HOST_BYTES / 8;

impl HomeDisplay {
    /// Stores it, its host cut at a character boundary.
    pub(super) fn write(&self, home: &Home) {
        self.id.store(home.id, Ordering::Relaxed);
        store_text(&self.host, &home.host);
    }

    pub(super) fn read(&self) -> Home {
        Home { id: self.id.load(Ordering::Relaxed), host: load_text(&self.host) }
    }
}

/// Stores as much of a text as there is room for, cut at a character boundary.
fn store_text(words: &[AtomicU64], text: &str) {
    let room = words.len() * 8;
    let ends = text.char_indices().map(|(start, c)| start + c.len_utf8());
    let end = ends.take_while(|end| *end <= room).last().unwrap_or(0);
    let bytes = &text.as_bytes()[..end];
    let mut chunks = bytes.chunks(8);
    for word in words {
        let mut filled = [0; 8];
        let chunk = chunks.next().unwrap_or_default();
        filled[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(filled), Ordering::Relaxed);
    }
}

fn load_text(words: &[AtomicU64]) -> String {
    let bytes: Vec<u8> =
        words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}

/// Why the gate of an endpoint is closed; 0 is open.
const CLOSED_ENDED: u32 = 1;
const CLOSED_STALE: u32 = 2;
const CLOSED_MASK: u32 = 0xff;

/// The line its owner looks at with every verb.
#[repr(C, align(64))]
pub(super) struct Control {
    /// Incarnation and, below it, why the gate is closed. A lane's keeper closes it, or a region's
    /// remover; nobody opens it.
    gate: AtomicU32,
    /// Not zero while a lane is within a verb. Only the lane stores it.
    busy: AtomicU32,
    /// More of what `ls` shows, which fills the line: written as its owner moves in.
    pub(super) home: HomeDisplay,
}

const _: () = assert!(size_of::<Control>() == 64);

impl Control {
    /// A new owner moves in.
    pub(super) fn open(&self, incarnation: u16) {
        self.busy.store(0, Ordering::Relaxed);
        self.gate.store(u32::from(incarnation) << 16, Ordering::Release);
    }

    /// Closes the gate of this owner. Returns false where it has a successor.
    pub(super) fn close(&self, incarnation: u16, stale: bool) -> bool {
        let reason = if stale { CLOSED_STALE } else { CLOSED_ENDED };
        let mut gate = self.gate.load(Ordering::Relaxed);
        while gate >> 16 == u32::from(incarnation) {
            // The stronger reason stays: an endpoint of a removed region must open it again.
            let closed = gate | reason;
            match self.gate.compare_exchange(gate, closed, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => gate = now,
            }
        }
        false
    }

    /// Whether its owner may do anything; why not, if not.
    #[inline(always)]
    pub(super) fn admit(&self) -> Result<(), Fault> {
        if self.is_open() { Ok(()) } else { Err(self.fault()) }
    }

    /// Whether its owner may do anything.
    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.gate.load(Ordering::Relaxed) & CLOSED_MASK == 0
    }

    /// Why it may not.
    #[cold]
    fn fault(&self) -> Fault {
        let stale = self.gate.load(Ordering::Relaxed) & CLOSED_STALE != 0;
        if stale { Fault::Stale } else { Fault::Revoked }
    }

    /// Whether its lane is within a verb.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) != 0
    }

    /// Whether what says so was overwritten.
    pub(super) fn is_damaged(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 1
    }

    /// Runs the effect of a verb of a lane, unless the gate is closed.
    ///
    /// Two plain stores and a load; the ordering that they lack is supplied by its keeper's end,
    /// where every processor passes a barrier between closing the gate and looking at `busy`.
    #[inline(always)]
    pub(super) fn within<R>(&self, effect: impl FnOnce() -> R) -> Result<R, Fault> {
        self.busy.store(1, Ordering::Relaxed);
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        if !self.is_open() {
            self.busy.store(0, Ordering::Release);
            return Err(self.fault());
        }
        let result = effect();
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        self.busy.store(0, Ordering::Release);
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control() -> Control {
        Control {
            gate: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            home: HomeDisplay { id: AtomicU64::new(0), host: Default::default() },
        }
    }

    #[test]
    fn a_closed_gate_stays_closed() {
        let control = control();
        control.open(7);
        assert_eq!(control.within(|| 1), Ok(1));
        assert!(control.close(7, false));
        assert_eq!(control.within(|| 1), Err(Fault::Revoked));
        assert!(control.close(7, true));
        assert_eq!(control.within(|| 1), Err(Fault::Stale));
        assert!(control.close(7, false));
        assert_eq!(control.within(|| 1), Err(Fault::Stale));
        assert!(!control.is_busy());
    }

    #[test]
    fn a_successor_is_not_closed_for_its_predecessor() {
        let control = control();
        control.open(8);
        assert!(!control.close(7, false));
        assert_eq!(control.within(|| 1), Ok(1));
    }

    #[test]
    fn a_home_is_read_as_it_was_written() {
        let display = control().home;
        let home = |host: &str| Home { id: 7, host: host.to_owned() };
        for (host, read) in
            [("web1", "web1"), (&"h".repeat(64), &*"h".repeat(HOST_BYTES)), ("", "")]
        {
            display.write(&home(host));
            assert_eq!(display.read(), home(read));
        }
    }

    #[test]
    fn a_label_is_cut_between_characters() {
        let display = Display {
            pid: AtomicU32::new(0),
            orphaned: AtomicU32::new(0),
            started_ticks: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
            label: Default::default(),
        };
        display.set_label("backup");
        assert_eq!(display.label(), "backup");
        display.set_label(&"ä".repeat(40));
        assert_eq!(display.label(), "ä".repeat(LABEL_BYTES / 2));
        display.set_label(&format!("x{}", "ä".repeat(40)));
        assert_eq!(display.label(), format!("x{}", "ä".repeat(LABEL_BYTES / 2 - 1)));
    }
}
