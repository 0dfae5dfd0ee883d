//! A region of this host as a connection.

use std::io;
use std::path::Path;

use super::endpoint::{Lane, ShmEndpoint};
use super::keeper::Keeper;
use super::parking::Unparker;
use super::region::{Options, Region};
use super::wait::park_all;
use crate::addr::Addr;
use crate::connection::{Connection, Origin, Peer, Tether};
use crate::error::ConnectError;

/// A region of this host, and nothing of it but what any [`Connection`] has: who needs more opens a
/// [`Region`].
#[derive(Clone, Debug)]
pub struct Host(Region);

impl Host {
    /// See [`Region::open`].
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn open(options: &Options) -> Result<Self, ConnectError> {
        Region::open(options).map(Self)
    }

    /// See [`Region::reset`].
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn reset(options: &Options) -> Result<Self, ConnectError> {
        Region::reset(options).map(Self)
    }

    /// See [`Region::remove`].
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn remove(dir: &Path, name: &str) -> Result<bool, ConnectError> {
        Region::remove(dir, name)
    }

    /// See [`Region::remove_unused`].
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn remove_unused(dir: &Path, name: &str) -> Result<bool, ConnectError> {
        Region::remove_unused(dir, name)
    }

    /// See [`Region::reset_unused`].
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn reset_unused(options: &Options) -> Result<Self, ConnectError> {
        Region::reset_unused(options).map(Self)
    }

    /// See [`Region::check_name`].
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn check_name(name: &str) -> Result<(), ConnectError> {
        Region::check_name(name)
    }

    /// See [`Region::check_state`].
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn check_state(options: &Options) -> Result<(), ConnectError> {
        Region::check_state(options)
    }

    /// See [`Region::list`].
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn list(dir: &Path) -> Result<Vec<String>, ConnectError> {
        Region::list(dir)
    }
}

impl Host {
    /// See [`Region::discard`]. By the thread of an endpoint whose death is to end what it may
    /// discard: a call to the system is over before the system lets its thread die.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn discard(&self, addr: Addr, bytes: u64) -> Result<u64, ConnectError> {
        self.0.discard(addr, bytes).map_err(|error| self.0.why_it_stays(error))
    }

    /// The region.
    #[cfg(all(feature = "tcp", not(shuttle)))]
    pub(crate) fn region(&self) -> &Region {
        &self.0
    }
}

impl Connection for Host {
    type Endpoint = ShmEndpoint;
    type Lane = Lane;
    type Keeper = Keeper;
    type Unparker = Unparker;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn heap(&self) -> (Addr, u64) {
        self.0.heap()
    }

    fn lengthen(&self, heap_bytes: u64) -> Result<(), ConnectError> {
        let is_long_enough = || self.0.heap().1 >= heap_bytes;
        // Looked at once: it may grow at any time.
        let missing = heap_bytes.saturating_sub(self.0.heap().1);
        if missing == 0 {
            return Ok(());
        }
        let grown = self.0.grow(missing);
        // Others may have been first, and then there is no room for as much again.
        match grown {
            _ if is_long_enough() => Ok(()),
            Err(error) => Err(self.0.why_it_stays(error)),
            Ok(_) => Err(ConnectError::Capacity {
                what: "bytes",
                value: heap_bytes,
                bound: "this process may map fewer of them (`ulimit -v`)",
            }),
        }
    }

    fn reserve(&self, addr: Addr, bytes: u64) -> Result<(), ConnectError> {
        let reserved = self.0.reserve(addr, bytes);
        reserved.map_err(|error| self.0.why_it_stays(error))
    }

    fn origin(&self) -> Origin {
        self.0.origin()
    }

    fn places(&self) -> u16 {
        self.0.endpoints()
    }

    fn is_deleted(&self) -> bool {
        self.0.is_deleted()
    }

    fn peers(&self) -> Vec<Peer> {
        self.0.peers()
    }

    fn endpoint(&self) -> Result<ShmEndpoint, ConnectError> {
        self.0.endpoint()
    }

    fn lane(&self, is_tethered: bool) -> Result<(Lane, Keeper), ConnectError> {
        self.0.lane(is_tethered)
    }

    fn tether(keeper: &Keeper) -> io::Result<Option<Tether>> {
        let fd = keeper.tether_fd().map(|fd| fd.try_clone_to_owned()).transpose()?;
        Ok(fd.map(Tether::new))
    }

    fn own_thread(&self) -> impl Sized + use<> {
        // Where the system does not let it the C library's list serves, which peers can damage.
        self.0.own_thread().ok()
    }

    fn unparker(lane: &Lane) -> Unparker {
        lane.unparker()
    }

    fn unpark(unparker: &Unparker) {
        unparker.unpark();
    }

    fn park_all<'l>(lanes: impl Iterator<Item = &'l Lane> + Clone, unparker: &Unparker) {
        park_all(lanes, unparker);
    }
}
