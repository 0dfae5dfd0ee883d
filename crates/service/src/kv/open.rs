//! Opening stores, and what else is done with a store as a whole.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use farlock_fabric::{ConnectError, Host};

use super::Kv;
use super::error::KvError;
use super::hub::{Hub, host_options, while_away};
use super::index::StoreOptions;
use super::spread::Several;
use crate::RegionOptions;
use crate::connection::Region;
use crate::session::Session;

impl Session {
    /// The key-value store of this name in the session's region, created where it is missing; a
    /// name, or [`StoreOptions`] that say which index it is to have too. A server that is away is
    /// waited for as long as the session lives without it.
    ///
    /// # Errors
    /// See [`KvError`]. A crash leaves no store, or an empty one.
    pub fn kv(&self, store: impl Into<StoreOptions>) -> Result<Kv, KvError> {
        let wanted = store.into();
        if self.is_forked() {
            return Err(KvError::Forked);
        }
        // Nothing that can panic runs under this mutex.
        let mut stores = self.root.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let open = stores.get(&wanted.name).and_then(Weak::upgrade);
        let hub = match open.filter(|hub| hub.check().is_ok()) {
            Some(hub) => hub.admit(wanted.index).map(|()| hub)?,
            None => {
                let hub = Arc::new(self.open_store(&wanted)?);
                stores.insert(wanted.name, Arc::downgrade(&hub));
                hub
            }
        };
        drop(stores);
        Kv::of(hub)
    }

    fn open_store(&self, wanted: &StoreOptions) -> Result<Hub, KvError> {
        while_away(self.patience(), || Hub::open(&self.root.options, wanted))
    }

    /// How long a server that is away is waited for.
    fn patience(&self) -> Duration {
        self.root.valid_for().unwrap_or_default()
    }
}

impl StoreOptions {
    /// Whether a store can have this name.
    ///
    /// # Errors
    /// [`KvError::BadName`]: it cannot.
    pub fn check_name(&self) -> Result<(), KvError> {
        Host::check_name(&self.name).map_err(|error| {
            let name = self.name.clone();
            match error {
                ConnectError::Name { name, why } => KvError::BadName { name, why },
                source => KvError::Open { name, source },
            }
        })
    }
}

impl RegionOptions {
    /// The names of the key-value stores of this region, sorted; a store of which it has a part is
    /// among them.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn store_names(&self) -> Result<Vec<String>, ConnectError> {
        self.check_dirs()?;
        self.check_name()?;
        Region::list(&host_options(self, "").dir)
    }

    /// Removes a key-value store with all that is in it; of one that is over several regions the
    /// part that this one has. Clients that have it open are told ([`KvError::Gone`]). Returns
    /// whether there was one.
    ///
    /// # Errors
    /// [`KvError::BadName`] and [`KvError::Open`].
    pub fn remove_store(&self, name: &str) -> Result<bool, KvError> {
        StoreOptions::new(name).check_name()?;
        let remove = || {
            self.check_dirs()?;
            self.check_name()?;
            Region::remove(&host_options(self, name).dir, name)
        };
        remove().map_err(|source| KvError::Open { name: name.to_owned(), source })
    }
}

impl Kv {
    /// Opens the store of this name in a region, as [`Session::kv`] does, for a program that needs
    /// no locks.
    ///
    /// # Errors
    /// See [`KvError`]. A crash leaves no store, or an empty one.
    pub fn open(options: &RegionOptions, store: impl Into<StoreOptions>) -> Result<Self, KvError> {
        Self::of(Arc::new(Hub::open(options, &store.into())?))
    }

    /// Opens one store over the regions of these sessions, created where it is missing: a hash of
    /// a key says in which of them its pair is. A handle does all that one of [`Session::kv`]
    /// does, by one hash more; each operation on a key is an act in its region alone.
    ///
    /// Sessions are to be named in the same order each time, and all of them: each part says in its
    /// header which it is, of how many, and of which store. One session alone has a store by
    /// itself, as [`Session::kv`] opens it.
    ///
    /// Where a server is down its keys fail or wait as those of a store by itself do, and all other
    /// keys go on. A server that is away when the store is opened is waited for as long as its
    /// session lives without it; then its part is opened when it is used, if another part is
    /// there.
    ///
    /// ```no_run
    /// # use farlock::{Kv, Session};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let sessions = [Session::connect("db1:4747")?, Session::connect("db2:4747")?];
    /// let users = Kv::over(&sessions, "users")?;
    /// users.put("alice", "admin")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`KvError`]; what is another part, or none, is refused before anything is written. A
    /// crash leaves no store, an empty one, or some of its parts: who opens it next makes the rest.
    pub fn over(sessions: &[Session], store: impl Into<StoreOptions>) -> Result<Self, KvError> {
        let wanted = store.into();
        if sessions.iter().any(Session::is_forked) {
            return Err(KvError::Forked);
        }
        if let [session] = sessions {
            return session.kv(wanted);
        }
        let Some(first) = sessions.first() else { return Self::open_over(&[], wanted) };
        let places: Vec<RegionOptions> =
            sessions.iter().map(|session| session.root.options.clone()).collect();
        let patience: Vec<Duration> = sessions.iter().map(Session::patience).collect();
        // Nothing that can panic runs under this mutex.
        let mut spreads = first.root.spreads.lock().unwrap_or_else(PoisonError::into_inner);
        let open = spreads.get(&wanted.name).and_then(Weak::upgrade);
        let several = match open.filter(|spread| spread.serves(&places, &wanted)) {
            Some(spread) => {
                KvError::unless_index(&wanted.name, spread.index, wanted.index)?;
                Several::of(&spread)?
            }
            None => {
                let name = wanted.name.clone();
                let several = Several::open(places, wanted, &patience)?;
                spreads.insert(name, Arc::downgrade(&several.spread));
                several
            }
        };
        Ok(Self::of_several(several))
    }

    /// Opens one store over these regions, as [`Kv::over`] does, for a program that needs no
    /// locks. No server that is away is waited for.
    ///
    /// # Errors
    /// See [`Kv::over`].
    pub fn open_over(
        regions: &[RegionOptions],
        store: impl Into<StoreOptions>,
    ) -> Result<Self, KvError> {
        if let [region] = regions {
            return Self::open(region, store);
        }
        let patience = vec![Duration::ZERO; regions.len()];
        Several::open(regions.to_vec(), store.into(), &patience).map(Self::of_several)
    }
}
