//! Verbs in flight: what was posted, how far it has come, how it ended.
//!
//! A flight is one verb; a chain is several, linked, and its first one (the head) speaks for it.
//! Flights are kept in a slab and reused with their buffers, so that nothing is allocated per verb.
//! A flight is touched by every event of its verb, so it holds only what every verb needs; what
//! reads, writes and messages need besides is its [`Cargo`], which lies elsewhere.

use farlock_fabric::verb::{MaskedCas, MaskedFaa};
use farlock_fabric::{Addr, EndpointId, Fault, Mailbox, Message, Nanos, Publication, Verb};

use crate::history::Kind;

/// No flight, no task.
pub(crate) const NONE: u32 = u32::MAX;

/// A verb that owns its operands; a write's words are in the flight's [`Cargo`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Read { words: u16 },
    Write,
    Cas64 { compare: u64, swap: u64 },
    Faa64 { add: u64 },
    MaskedCas64(MaskedCas<u64>),
    MaskedFaa64(MaskedFaa<u64>),
    MaskedCas128(MaskedCas<u128>),
    MaskedFaa128(MaskedFaa<u128>),
    Send { to: Mailbox, message: Message },
}

/// Which words of a torn read or write come next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tear {
    /// Whether it is torn at all.
    pub(crate) torn: bool,
    /// The word served first.
    pub(crate) origin: u16,
    /// Whether the others follow downwards. Either way they go round at the end.
    pub(crate) down: bool,
    /// How many were served.
    pub(crate) served: u16,
}

/// When a message is due at its mailbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// Not known yet: its turn in its chain has not come.
    Unknown,
    /// Then, but an older message to the same endpoint is still on its way.
    Behind(Nanos),
    /// Its event is in the queue.
    Scheduled,
}

/// A line of the processor's cache holds what every event of a verb needs, the next ones what it
/// does and what it finds.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Flight {
    pub(crate) owner: EndpointId,
    /// Which use of this place in the slab this is; part of the ticket.
    pub(crate) generation: u32,
    /// Who is polled when it completes: the task that posted it or last asked for it.
    pub(crate) task: u32,
    /// The head of its chain: itself if it is alone.
    pub(crate) head: u32,
    /// The next link of its chain.
    pub(crate) next: u32,
    pub(crate) kind: Kind,
    /// How it ended, or so far seems to end.
    pub(crate) status: Result<(), Fault>,
    /// Serve it only after every earlier read of its chain.
    pub(crate) fence: bool,
    /// It takes no effect any more (its endpoint crashed, or the verb was lost on the way).
    pub(crate) cancelled: bool,
    pub(crate) addr: Addr,
    pub(crate) chain: Chain,
    /// A read that later verbs of its chain overtook.
    pub(crate) overtaken: bool,
    /// An atomic's old word, or the first two words of a read.
    pub(crate) old: u128,
    pub(crate) action: Action,
    /// What its owner's record says if its comparison fails.
    pub(crate) otherwise: Option<Publication>,
}

const _: () =
    assert!(std::mem::offset_of!(Flight, overtaken) < 64, "what every event needs is one line");

/// What a flight carries along if it is a read, a write or a message. For any other verb it holds
/// what an earlier flight left.
#[derive(Debug)]
pub(crate) struct Cargo {
    /// How a read or write is torn.
    pub(crate) tear: Tear,
    /// When a message is due.
    pub(crate) due: Due,
    /// Of a verb that adds, where that matters: when it was posted.
    pub(crate) posted: Nanos,
    /// What a read found or a write stores.
    pub(crate) data: Vec<u64>,
}

/// What only the head of a chain uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    /// Which of its owner's queue pairs it was posted to.
    pub(crate) pair: u16,
    /// Links not yet served.
    pub(crate) unserved: u16,
    /// Reads served late that are still to be served.
    pub(crate) open_reads: u16,
    /// Whether there was a read since the last fence.
    pub(crate) read: bool,
    /// The link that waits at its fence for `open_reads`.
    pub(crate) fenced: u32,
    /// The time of the way back, in nanoseconds.
    pub(crate) reply_ns: u32,
    /// Added to the way there, once, when it arrives.
    pub(crate) hold_ns: u32,
    /// Its completion is lost: it ends with `Fault::Lost`, whatever it did.
    pub(crate) lost: bool,
    /// Nobody will ask for it.
    pub(crate) abandoned: bool,
    /// It stands in its queue pair's order.
    pub(crate) queued: bool,
    /// The completion has reached the endpoint, though earlier ones may not have.
    pub(crate) arrived: bool,
    /// It is complete and waits to be asked for.
    pub(crate) done: bool,
    /// The next one posted to the same queue pair.
    pub(crate) behind: u32,
}

impl Chain {
    const NEW: Self = Self {
        pair: 0,
        unserved: 1,
        open_reads: 0,
        read: false,
        fenced: NONE,
        reply_ns: 0,
        hold_ns: 0,
        lost: false,
        abandoned: false,
        queued: false,
        arrived: false,
        done: false,
        behind: NONE,
    };
}

#[derive(Default)]
pub(crate) struct Flights {
    slab: Vec<Flight>,
    /// By the same index.
    cargo: Vec<Cargo>,
    free: Vec<u32>,
}

impl Flights {
    #[inline]
    pub(crate) fn at(&self, index: u32) -> &Flight {
        &self.slab[index as usize]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> &mut Flight {
        &mut self.slab[index as usize]
    }

    #[inline]
    pub(crate) fn cargo(&self, index: u32) -> &Cargo {
        &self.cargo[index as usize]
    }

    #[inline]
    pub(crate) fn cargo_mut(&mut self, index: u32) -> &mut Cargo {
        &mut self.cargo[index as usize]
    }

    /// A read or write with what it carries.
    #[inline]
    pub(crate) fn loaded_mut(&mut self, index: u32) -> (&mut Flight, &mut Cargo) {
        (&mut self.slab[index as usize], &mut self.cargo[index as usize])
    }

    /// The index of every chain's head that is in flight, in the slab's order.
    pub(crate) fn heads(&self) -> Vec<u32> {
        let mut busy = vec![true; self.slab.len()];
        self.free.iter().for_each(|&index| busy[index as usize] = false);
        (0..self.slab.len() as u32)
            .filter(|&index| busy[index as usize] && self.at(index).head == index)
            .collect()
    }

    /// A new flight, alone in its chain.
    #[inline]
    pub(crate) fn add(&mut self, owner: EndpointId, task: u32, verb: &Verb<'_>) -> u32 {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.extend(),
        };
        let flight = &mut self.slab[index as usize];
        flight.owner = owner;
        flight.task = task;
        flight.kind = Kind::of(verb);
        flight.status = Ok(());
        flight.fence = false;
        flight.cancelled = false;
        flight.overtaken = false;
        flight.head = index;
        flight.next = NONE;
        flight.addr = verb.addr().unwrap_or(Addr::from_bits(0));
        flight.action = action(verb);
        flight.old = 0;
        flight.otherwise = None;
        flight.chain = Chain::NEW;
        if matches!(flight.kind, Kind::Read | Kind::Write | Kind::Send) {
            self.cargo[index as usize].load(verb);
        }
        index
    }

    /// Gives back a whole chain.
    #[inline]
    pub(crate) fn remove(&mut self, head: u32) {
        let mut index = head;
        while index != NONE {
            let flight = &mut self.slab[index as usize];
            flight.generation = flight.generation.wrapping_add(1);
            self.free.push(index);
            index = flight.next;
        }
    }

    #[cold]
    fn extend(&mut self) -> u32 {
        self.slab.push(Flight {
            owner: EndpointId::NOBODY,
            generation: 0,
            task: NONE,
            kind: Kind::Read,
            status: Ok(()),
            fence: false,
            cancelled: false,
            overtaken: false,
            head: NONE,
            next: NONE,
            addr: Addr::from_bits(0),
            action: Action::Write,
            old: 0,
            otherwise: None,
            chain: Chain::NEW,
        });
        self.cargo.push(Cargo {
            tear: Tear::default(),
            due: Due::Unknown,
            posted: 0,
            data: Vec::new(),
        });
        (self.slab.len() - 1) as u32
    }
}

impl Cargo {
    /// Gets ready for this verb.
    fn load(&mut self, verb: &Verb<'_>) {
        self.tear = Tear::default();
        self.due = Due::Unknown;
        self.data.clear();
        if let Verb::Write { data, .. } = *verb {
            self.data.extend_from_slice(data);
        }
    }
}

#[inline]
fn action(verb: &Verb<'_>) -> Action {
    match *verb {
        Verb::Read { words, .. } => Action::Read { words },
        Verb::Write { .. } => Action::Write,
        Verb::Cas64 { compare, swap, .. } => Action::Cas64 { compare, swap },
        Verb::Faa64 { add, .. } => Action::Faa64 { add },
        Verb::MaskedCas64 { op, .. } => Action::MaskedCas64(op),
        Verb::MaskedFaa64 { op, .. } => Action::MaskedFaa64(op),
        // The hint is for executors on a CPU and never changes the outcome.
        Verb::MaskedCas128 { op, .. } => Action::MaskedCas128(op),
        Verb::MaskedFaa128 { op, .. } => Action::MaskedFaa128(op),
        Verb::Send { to, message } => Action::Send { to, message },
    }
}
