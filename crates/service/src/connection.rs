//! The fabrics that sessions connect by: memory of this host, or a server's over TCP. Only what
//! [`Connection`] promises is asked of them elsewhere.
//!
//! A session has one of them for its whole life. What is hot is written for memory at hand, whose
//! verbs complete where they are posted; over TCP a verb blocks its thread for a round trip.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use farlock_fabric::tcp::{
    AtOnce, ClientTls, Patience, Remote, TcpKeeper, TcpLane, TcpUnparker, TlsFiles,
};
use farlock_fabric::{
    Addr, ConnectError, Connection, EndpointId, Envelope, Fault, HoldBack, Host, HostOptions,
    LinkDone, MaskedAtomics, Nanos, Origin, Park, Peer, Posted, Slot, Tether, Ticket, Verb, Wait,
    WaitState, WideAtomics, Woken,
};
use farlock_fabric::{Link, shm};

use crate::address::{check_address, without_tls};
use crate::text::shown_whole;

/// A region of this host, or of a server.
#[derive(Clone, Debug)]
pub(crate) enum Region {
    Here(Host),
    There(Remote),
}

/// One of its lanes.
#[derive(Debug)]
pub(crate) enum Lane {
    Here(shm::Lane),
    There(AtOnce),
}

/// Keeps a lane.
#[derive(Debug)]
#[must_use = "the endpoint lives as long as its keeper"]
pub(crate) enum Keeper {
    Here(shm::Keeper),
    There(TcpKeeper),
}

/// Ends the parks of a thread, by whichever of the two it sleeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unparker {
    here: shm::Unparker,
    there: TcpUnparker,
}

/// A lane with its keeper.
pub(crate) struct Endpoint {
    lane: Lane,
    _keeper: Keeper,
}

impl farlock_fabric::hook::Hook for Endpoint {
    type Inner = Lane;

    fn inner(&self) -> &Lane {
        &self.lane
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lane.fmt(f)
    }
}

impl Region {
    /// See [`Host::open`].
    pub(crate) fn open(options: &HostOptions) -> Result<Self, ConnectError> {
        Host::open(options).map(Self::Here)
    }

    /// See [`Remote::connect`].
    pub(crate) fn connect(
        server: &str,
        tls: Option<&TlsFiles>,
        (name, label): (&str, &str),
        makes: bool,
    ) -> Result<Self, ConnectError> {
        check_address(server, false).map_err(|wrong| ConnectError::Unreachable {
            server: shown_whole(server),
            source: io::Error::new(io::ErrorKind::InvalidInput, wrong),
        })?;
        let remote = match tls {
            Some(_) if !cfg!(feature = "tls") => Err(without_tls()),
            tls => {
                let tls = tls.map(ClientTls::load).transpose()?;
                match (tls, makes) {
                    (tls, false) => Remote::find(tls.as_ref(), server, name, label),
                    (None, true) => Remote::connect(server, name, label),
                    (Some(tls), true) => Remote::connect_secured(&tls, server, name, label),
                }
            }
        };
        remote.map(Self::There)
    }

    /// Whether what one session keeps for later others may miss: a server has places for half as
    /// many as a region.
    pub(crate) fn has_few_places(&self) -> bool {
        matches!(self, Self::There(_))
    }

    /// Whether it is a server's, and the connection has ended.
    pub(crate) fn is_disconnected(&self) -> bool {
        matches!(self, Self::There(remote) if remote.is_over())
    }

    /// Whether that is because this process did not run for too long.
    pub(crate) fn has_slept_through(&self) -> bool {
        matches!(self, Self::There(remote) if remote.has_slept_through())
    }

    /// Whether that is because the server takes its certificate no more.
    pub(crate) fn is_revoked(&self) -> bool {
        matches!(self, Self::There(remote) if remote.is_revoked())
    }

    /// What a fault of the first verbs by a connection says: by a server, that it ended, or was cut
    /// off, meanwhile.
    pub(crate) fn fault_in_opening(&self, fault: Fault) -> Option<ConnectError> {
        match (self, fault) {
            (Self::There(remote), Fault::Lost | Fault::Revoked) => {
                Some(ConnectError::HungUp { server: remote.server().to_owned() })
            }
            _ => None,
        }
    }

    /// Its user is about to go, and waits for no server that is gone.
    pub(crate) fn leave(&self) {
        if let Self::There(remote) = self {
            remote.leave();
        }
    }

    /// Whether each of its verbs takes a round trip.
    pub(crate) fn is_far(&self) -> bool {
        matches!(self, Self::There(_))
    }

    /// For how long what its lanes hold is theirs at least; `None` where no lease bounds that.
    pub(crate) fn valid_for(&self) -> Option<Duration> {
        match self {
            Self::Here(_) => None,
            Self::There(remote) => Some(remote.valid_for()),
        }
    }

    /// Whether a server keeps that for as long as the connection stands, however long this process
    /// says nothing.
    pub(crate) fn is_kept_by_connection(&self) -> bool {
        matches!(self, Self::There(remote) if remote.is_kept_by_connection())
    }

    /// Sleeps until anything comes by these lanes of a server, the unparker calls, or so long at
    /// most; what comes for others wakes their tasks. `false`, and it did not sleep: the region is
    /// of this host.
    pub(crate) fn watch<'l>(
        &self,
        lanes: impl Iterator<Item = &'l Lane> + Clone,
        unparker: &Unparker,
        limit: Option<Duration>,
    ) -> bool {
        let Self::There(remote) = self else { return false };
        remote.watch(lanes.filter_map(Lane::there), &unparker.there, limit);
        true
    }

    /// See [`Host::reset`].
    pub(crate) fn reset(options: &HostOptions) -> Result<Self, ConnectError> {
        Host::reset(options).map(Self::Here)
    }

    /// See [`Host::remove`].
    pub(crate) fn remove(dir: &Path, name: &str) -> Result<bool, ConnectError> {
        Host::remove(dir, name)
    }

    /// See [`Host::remove_unused`].
    pub(crate) fn remove_unused(dir: &Path, name: &str) -> Result<bool, ConnectError> {
        Host::remove_unused(dir, name)
    }

    /// See [`Host::reset_unused`].
    pub(crate) fn reset_unused(options: &HostOptions) -> Result<Self, ConnectError> {
        Host::reset_unused(options).map(Self::Here)
    }

    /// See [`Host::list`].
    pub(crate) fn list(dir: &Path) -> Result<Vec<String>, ConnectError> {
        Host::list(dir)
    }
}

impl Lane {
    fn there(&self) -> Option<&TcpLane> {
        match self {
            Self::Here(_) => None,
            Self::There(lane) => Some(lane.lane()),
        }
    }

    /// Blocks until a verb has completed that was posted by [`Lane::defer`].
    pub(crate) fn complete(&self, ticket: Ticket) -> Result<(), Fault> {
        match self {
            Self::Here(_) => unreachable!("it has completed where it was posted"),
            Self::There(lane) => lane.complete(ticket),
        }
    }

    /// The same, until this time at most. `None`: it has not completed.
    pub(crate) fn complete_by(&self, ticket: Ticket, until: Instant) -> Option<Result<(), Fault>> {
        match self {
            Self::Here(_) => unreachable!("it has completed where it was posted"),
            Self::There(lane) => {
                let left = until.saturating_duration_since(Instant::now());
                lane.complete_within(ticket, left.as_nanos() as Nanos)
            }
        }
    }

    /// Why a server's lane takes no verb any more, if it does not.
    pub(crate) fn refusal(&self) -> Option<Fault> {
        self.there().and_then(TcpLane::refusal)
    }

    /// Does something whose verbs need not complete where they are posted: by a server they are on
    /// their way then.
    pub(crate) fn defer<T>(&self, act: impl FnOnce() -> T) -> T {
        match self {
            Self::Here(_) => act(),
            Self::There(lane) => lane.defer(act),
        }
    }

    /// Does something whose first verb a server may hold back for so long.
    pub(crate) fn patiently<T>(&self, patience: Patience, act: impl FnOnce() -> T) -> T {
        let Self::There(lane) = self else { return act() };
        lane.lane().be_patient(patience);
        let done = act();
        lane.lane().be_patient(Patience::default());
        done
    }

    /// Does something whose waits do not keep this thread: they neither spin nor yield.
    pub(crate) fn briefly<T>(&self, act: impl FnOnce() -> T) -> T {
        match self {
            Self::Here(lane) => lane.briefly(act),
            Self::There(_) => act(),
        }
    }

    /// From now on a server may hold back for so long what is posted patiently.
    pub(crate) fn be_patient(&self, patience: Patience) {
        if let Self::There(lane) = self {
            lane.lane().be_patient(patience);
        }
    }

    /// Does something whose verbs complete where they are posted, also among what is deferred: so
    /// it can be dropped wherever it waits for others.
    pub(crate) async fn at_once<T>(&self, act: impl Future<Output = T>) -> T {
        let Self::There(lane) = self else { return act.await };
        let mut act = pin!(act);
        poll_fn(|cx| lane.at_once(|| act.as_mut().poll(cx))).await
    }

    /// Does something whose verbs are awaited, by a server too: its thread goes on meanwhile.
    pub(crate) async fn deferring<T>(&self, act: impl Future<Output = T>) -> T {
        let mut act = pin!(act);
        poll_fn(|cx| self.defer(|| act.as_mut().poll(cx))).await
    }
}

/// What it is of either.
macro_rules! either {
    ($kind:ident: $this:expr, $inner:ident => $result:expr) => {
        match $this {
            $kind::Here($inner) => $result,
            $kind::There($inner) => $result,
        }
    };
}

impl Connection for Region {
    type Endpoint = Endpoint;
    type Lane = Lane;
    type Keeper = Keeper;
    type Unparker = Unparker;

    fn name(&self) -> &str {
        either!(Self: self, region => region.name())
    }

    fn heap(&self) -> (Addr, u64) {
        either!(Self: self, region => region.heap())
    }

    fn lengthen(&self, heap_bytes: u64) -> Result<(), ConnectError> {
        either!(Self: self, region => region.lengthen(heap_bytes))
    }

    fn reserve(&self, addr: Addr, bytes: u64) -> Result<(), ConnectError> {
        either!(Self: self, region => region.reserve(addr, bytes))
    }

    fn origin(&self) -> Origin {
        either!(Self: self, region => region.origin())
    }

    fn places(&self) -> u16 {
        either!(Self: self, region => region.places())
    }

    fn is_deleted(&self) -> bool {
        either!(Self: self, region => region.is_deleted())
    }

    fn peers(&self) -> Vec<Peer> {
        either!(Self: self, region => region.peers())
    }

    fn endpoint(&self) -> Result<Endpoint, ConnectError> {
        let (lane, keeper) = self.lane(false)?;
        Ok(Endpoint { lane, _keeper: keeper })
    }

    fn lane(&self, is_tethered: bool) -> Result<(Lane, Keeper), ConnectError> {
        Ok(match self {
            Self::Here(host) => {
                let (lane, keeper) = host.lane(is_tethered)?;
                (Lane::Here(lane), Keeper::Here(keeper))
            }
            Self::There(remote) => {
                let (lane, keeper) = remote.lane(is_tethered)?;
                (Lane::There(AtOnce::new(lane)), Keeper::There(keeper))
            }
        })
    }

    fn tether(keeper: &Keeper) -> io::Result<Option<Tether>> {
        match keeper {
            Keeper::Here(keeper) => Host::tether(keeper),
            Keeper::There(keeper) => Remote::tether(keeper),
        }
    }

    fn own_thread(&self) -> impl Sized + use<> {
        match self {
            Self::Here(host) => Some(host.own_thread()),
            Self::There(_) => None,
        }
    }

    fn unparker(lane: &Lane) -> Unparker {
        match lane {
            Lane::Here(lane) => Unparker { here: Host::unparker(lane), ..Unparker::default() },
            Lane::There(lane) => {
                Unparker { there: Remote::unparker(lane.lane()), ..Unparker::default() }
            }
        }
    }

    fn unpark(unparker: &Unparker) {
        Host::unpark(&unparker.here);
        Remote::unpark(&unparker.there);
    }

    /// They are lanes of one region: all here, or all there.
    fn park_all<'l>(lanes: impl Iterator<Item = &'l Lane> + Clone, unparker: &Unparker) {
        let here = lanes.clone().filter_map(|lane| match lane {
            Lane::Here(lane) => Some(lane),
            Lane::There(_) => None,
        });
        if here.clone().next().is_some() {
            return Host::park_all(here, &unparker.here);
        }
        Remote::park_all(lanes.filter_map(Lane::there), &unparker.there);
    }
}

/// Every method goes on to the lane inside.
macro_rules! of_either {
    ($(fn $name:ident(&self $(, $argument:ident: $kind:ty)*) $(-> $result:ty)?;)+) => {
        $(#[inline(always)]
        fn $name(&self $(, $argument: $kind)*) $(-> $result)? {
            match self {
                Self::Here(lane) => lane.$name($($argument),*),
                Self::There(lane) => far(|| lane.$name($($argument),*)),
            }
        })+
    };
}

/// What takes a round trip is not to be in the way of what takes nanoseconds.
#[cold]
#[inline(never)]
fn far<T>(act: impl FnOnce() -> T) -> T {
    act()
}

impl farlock_fabric::Endpoint for Lane {
    const COMPLETES_IN_POST: bool = true;
    const WATCHES_MEMORY: bool = true;
    /// Over TCP a look costs a round trip for each endpoint; waiters look ever more seldom.
    const LOOKS_AROUND_CHEAPLY: bool = true;
    const SHARES_PROCESSORS: bool = true;

    of_either! {
        fn id(&self) -> EndpointId;
        fn slots(&self) -> u8;
        fn post(&self, verb: Verb<'_>) -> Posted;
        fn post_aside(&self, verb: Verb<'_>) -> Posted;
        fn post_patiently(&self, verb: Verb<'_>, hold: HoldBack) -> Posted;
        fn holds_back(&self) -> bool;
        fn post_chain(&self, chain: &[Link<'_>]) -> Posted;
        fn poll_posted(&self, ticket: Ticket, cx: &mut Context<'_>) -> Poll<Result<(), Fault>>;
        fn abandon(&self, ticket: Ticket);
        fn old(&self) -> u128;
        fn link(&self, index: usize) -> LinkDone;
        fn copy_read(&self, index: usize, into: &mut [u64]) -> usize;
        fn receive(&self, slot: Slot) -> Option<Envelope>;
        fn has_unread(&self, slot: Slot) -> bool;
        fn poll_wait(
            &self, wait: &Wait<'_>, state: &mut WaitState, cx: &mut Context<'_>
        ) -> Poll<Woken>;
        fn end_wait(&self, state: &mut WaitState);
        fn now(&self) -> Nanos;
        fn random(&self) -> u64;
        fn publish(&self, slot: Slot, word: usize, value: u64);
        fn show(&self);
        fn record(&self, index: u16, slot: Slot) -> Addr;
        fn endpoints(&self) -> u16;
        fn occupied_from(&self, index: u16) -> Option<u16>;
        fn occupant(&self, index: u16) -> Option<EndpointId>;
        fn is_alive(&self, id: EndpointId) -> bool;
    }

    fn post_unsignalled(&self, verb: Verb<'_>, may_lie: bool) {
        match self {
            Self::Here(lane) => lane.post_unsignalled(verb, may_lie),
            Self::There(lane) => lane.lane().post_unsignalled(verb, may_lie),
        }
    }

    fn post_all_unsignalled<'v>(&self, verbs: impl Iterator<Item = Verb<'v>>) {
        match self {
            Self::Here(lane) => lane.post_all_unsignalled(verbs),
            Self::There(lane) => lane.lane().post_all_unsignalled(verbs),
        }
    }
}

impl MaskedAtomics for Lane {}

impl WideAtomics for Lane {}

impl Park for Lane {
    fn park(&self) {
        either!(Self: self, lane => lane.park());
    }
}
