//! Connections: what those need of a fabric that find locks by name in one region.
//!
//! A connection gives endpoints, and says of its region what is no verb's to say: where its words
//! lie, where its tokens begin, which peers are there. What is written against [`Connection`] runs
//! on every fabric that has one.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::fstat;

use crate::addr::{Addr, EndpointId};
use crate::endpoint::{Nanos, Park, WideAtomics};
use crate::error::ConnectError;
use crate::home::Home;

/// One region of far memory, connected to. Clones are the same connection.
pub trait Connection: Clone + fmt::Debug + Send + Sync + 'static {
    /// An endpoint of the thread that attached it.
    type Endpoint: WideAtomics + Park;
    /// An endpoint that goes from thread to thread, as long as its keeper is there.
    type Lane: WideAtomics + Park + Send;
    /// Keeps a lane, on the thread that attached it: with that thread it dies.
    type Keeper;
    /// Ends the parks of one thread, from any other. Clones are the same.
    type Unparker: Clone + Default + fmt::Debug + Send + Sync + 'static;

    /// The region's name.
    fn name(&self) -> &str;

    /// Where the words of users begin, and how many bytes of them there are now.
    fn heap(&self) -> (Addr, u64);

    /// Makes the heap at least so long, if it is not yet; what comes to it is zero.
    ///
    /// # Errors
    /// See [`ConnectError`]; the heap is as long as it was.
    fn lengthen(&self, heap_bytes: u64) -> Result<(), ConnectError>;

    /// Gives these words of the heap their memory again, where it was given back to the system:
    /// what comes is zero, and what is there stays. May be done as often as one likes.
    ///
    /// # Errors
    /// See [`ConnectError`].
    fn reserve(&self, addr: Addr, bytes: u64) -> Result<(), ConnectError>;

    /// Where the region's fencing tokens begin, above those of every region of its name before.
    fn origin(&self) -> Origin;

    /// How many endpoints the region has room for.
    fn places(&self) -> u16;

    /// Whether those that connect by this name now find another region.
    fn is_deleted(&self) -> bool;

    /// The endpoints that count as alive, in the order of their indices.
    fn peers(&self) -> Vec<Peer>;

    /// Attaches the calling thread.
    ///
    /// # Errors
    /// See [`ConnectError`].
    fn endpoint(&self) -> Result<Self::Endpoint, ConnectError>;

    /// Attaches a lane. One that is tethered counts as alive as long as any process has its
    /// [tether](Connection::tether).
    ///
    /// # Errors
    /// See [`ConnectError`].
    fn lane(&self, is_tethered: bool) -> Result<(Self::Lane, Self::Keeper), ConnectError>;

    /// The tether of a lane, if it has one.
    ///
    /// # Errors
    /// What the system says.
    fn tether(keeper: &Self::Keeper) -> io::Result<Option<Tether>>;

    /// Prepares the calling thread to keep lanes of this connection and nothing else, until what is
    /// returned is dropped. What cannot be prepared is done without.
    fn own_thread(&self) -> impl Sized + use<Self>;

    /// What ends the parks of this lane alone.
    fn unparker(lane: &Self::Lane) -> Self::Unparker;

    /// Ends the current park by this unparker, or the next one.
    fn unpark(unparker: &Self::Unparker);

    /// Blocks until a wait of one of these lanes that was polled may have ended, or the unparker of
    /// the calling thread is used.
    fn park_all<'l>(lanes: impl Iterator<Item = &'l Self::Lane> + Clone, unparker: &Self::Unparker)
    where
        Self::Lane: 'l;
}

/// What keeps a lane's endpoint alive in the processes that have its descriptor. Clones are the
/// same one.
///
/// A fabric may have to replace it: one that is a connection to a server ends with that server.
#[derive(Clone, Debug)]
pub struct Tether(Arc<Tied>);

#[derive(Debug)]
struct Tied {
    /// What it is now, and by what its server knows that.
    now: Mutex<(OwnedFd, u128)>,
    /// Whether it was ever duplicated, so that others may have one that was replaced.
    is_shared: AtomicBool,
    teller: Option<Box<dyn Teller>>,
}

/// Tells a server that every process that had an earlier tether has this one now, or is gone.
pub(crate) trait Teller: fmt::Debug + Send + Sync {
    fn tell(&self, secret: u128);
}

impl Tether {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self::told_of((fd, 0), None)
    }

    pub(crate) fn told_of(now: (OwnedFd, u128), teller: Option<Box<dyn Teller>>) -> Self {
        Self(Arc::new(Tied { now: Mutex::new(now), is_shared: AtomicBool::new(false), teller }))
    }

    /// A duplicate of what it is now.
    ///
    /// # Errors
    /// What the system says.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.0.is_shared.store(true, Ordering::SeqCst);
        self.now().0.try_clone()
    }

    /// Every process that had a duplicate of what it was before it was replaced has this one, or is
    /// gone. A duplicate that was replaced itself tells nothing.
    pub fn is_passed_on(&self, duplicate: &OwnedFd) {
        let now = self.now();
        let is_it = matches!((fstat(&now.0), fstat(duplicate)), (Ok(one), Ok(other))
            if (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino));
        let secret = now.1;
        drop(now);
        if let Some(teller) = self.0.teller.as_ref().filter(|_| is_it) {
            teller.tell(secret);
        }
    }

    /// Another one is instead of it. Who had only this needs nothing passed on.
    #[cfg(feature = "tcp")]
    pub(crate) fn replace(&self, fd: OwnedFd, secret: u128) {
        *self.now() = (fd, secret);
        if let Some(teller) = self.0.teller.as_ref()
            && !self.0.is_shared.load(Ordering::SeqCst)
        {
            teller.tell(secret);
        }
    }

    fn now(&self) -> MutexGuard<'_, (OwnedFd, u128)> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the tokens of a region begin. Those of a later one are above all tokens of the one before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Origin {
    /// The upper 16 bits: a day, 1 for 2026-01-01; later where the clock went back.
    pub incarnation: u16,
    /// What the counts of its locks begin at: the time of that day in nanoseconds.
    pub first_count: u64,
}

/// An endpoint that is attached, for display.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The endpoint.
    pub id: EndpointId,
    /// Its process, as that process's own namespace numbers it.
    pub pid: u32,
    /// When its process started, in clock ticks after boot; with the pid it names the process.
    pub started_ticks: u64,
    /// When it attached, in nanoseconds of the boot clock.
    pub since: Nanos,
    /// What it was called when it attached.
    pub label: String,
    /// Where its process lives.
    pub home: Home,
    /// Whether its children keep it alive too.
    pub tethered: bool,
    /// Whether its own thread is dead and only children keep it alive.
    pub orphaned: bool,
}
