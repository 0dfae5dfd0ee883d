//! The locks as subjects of the driver loop: a client of any lock over any endpoint, through its
//! async face or its blocking face.

use std::rc::Rc;

use farlock_fabric::hook::{Counted, Counts, Hook};
use farlock_fabric::shm::ShmEndpoint;
use farlock_fabric::{Addr, Endpoint, Nanos, Park, WideAtomics};
use farlock_locks::local::{self, HandoverTable};
use farlock_locks::lock::Server;
use farlock_locks::registry::Visitor;
use farlock_locks::{Client, Guard, Lock, Mode};
use farlock_sim::SimEndpoint;

use crate::drive::{Failure, Subject};
use crate::storm::strike::Struck;

/// An endpoint that may be counted: counting costs an uncontended cycle a tenth of its time.
pub trait Counting: Endpoint {
    /// Verbs posted so far; none where they are not counted.
    fn verbs(&self) -> Counts;
}

impl<E: Endpoint> Counting for Counted<E> {
    fn verbs(&self) -> Counts {
        self.counts()
    }
}

/// The one endpoint of clients in a simulated world that nobody watches. Every lock is compiled
/// once more for each kind of endpoint, which is most of what the laboratory takes to build.
pub type Simulated = Counted<SimEndpoint>;

/// The one endpoint of clients on shared memory that are counted or struck. That nothing strikes a
/// client costs a look a verb.
pub type Hooked = Struck<Counted<ShmEndpoint>>;

impl<E: Endpoint> Counting for Struck<Counted<E>> {
    fn verbs(&self) -> Counts {
        self.inner().counts()
    }
}

/// Such an endpoint that nothing befalls.
pub(crate) fn unstruck(endpoint: ShmEndpoint) -> Hooked {
    Struck::new(Counted::new(endpoint), &[], |_| ())
}

impl Counting for ShmEndpoint {
    fn verbs(&self) -> Counts {
        Counts::default()
    }
}

/// Visits a lock for what its server does at this endpoint.
pub(crate) struct ServeAt<E>(pub(crate) Rc<E>);

impl<E: WideAtomics> Visitor<E> for ServeAt<E> {
    type Output = Server;

    fn asks_for_size(&self) -> bool {
        // A server has no use for the words.
        true
    }

    fn visit<L: Lock<E>>(self, mut lock: L) -> Server {
        lock.server().expect("it needs a server").serve(self.0)
    }
}

/// A client and the place of its locks.
pub(crate) struct Site<E: Endpoint, L: Lock<E>> {
    pub(crate) client: Client<E, L>,
    pub(crate) locks: Addr,
}

impl<E: Endpoint, L: Lock<E>> Site<E, L> {
    #[inline(always)]
    pub(crate) fn addr(&self, lock: u32) -> Addr {
        self.locks.plus(u64::from(lock) * L::BYTES)
    }

    pub(crate) fn now(&self) -> Nanos {
        self.client.endpoint().now()
    }

    pub(crate) async fn work(&self, nanos: Nanos) {
        work(self.client.endpoint(), nanos).await;
    }
}

/// A processor is kept busy; a simulated client sleeps.
pub(crate) async fn work<E: Endpoint>(endpoint: &E, nanos: Nanos) {
    if E::SHARES_PROCESSORS {
        let end = endpoint.now() + nanos;
        while endpoint.now() < end {
            std::hint::spin_loop();
        }
    } else {
        endpoint.sleep(nanos).await;
    }
}

/// What a face has of the site in this field, and of what is held.
macro_rules! through_site {
    ($site:tt) => {
        #[inline]
        fn now(&self) -> Nanos {
            self.$site.now()
        }

        fn expires(&self, held: &Self::Held<'_>) -> Option<Nanos> {
            held.expires()
        }

        fn abandon<'s>(&'s self, held: Self::Held<'s>) {
            held.abandon();
        }

        async fn work(&self, nanos: Nanos) {
            self.$site.work(nanos).await;
        }

        fn verbs(&self) -> Counts {
            self.$site.client.endpoint().verbs()
        }
    };
}

pub(crate) use through_site;

/// Acquisitions and releases that are awaited.
pub struct AsyncFace<E: Counting, L: Lock<E>>(Site<E, L>);

impl<E: Counting, L: Lock<E>> AsyncFace<E, L> {
    /// A client whose locks lie one after the other from `locks` on.
    pub fn new(client: Client<E, L>, locks: Addr) -> Self {
        Self(Site { client, locks })
    }
}

impl<E: Counting, L: Lock<E>> Subject for AsyncFace<E, L> {
    type Held<'s> = Guard<'s, E, L>;

    through_site!(0);

    #[inline(always)]
    async fn acquire(&self, lock: u32, mode: Mode) -> Result<Self::Held<'_>, Failure> {
        Ok(self.0.client.acquire(self.0.addr(lock), mode).await?)
    }

    #[inline(always)]
    async fn release<'s>(&'s self, held: Self::Held<'s>) -> Result<(), Failure> {
        Ok(held.release().await?)
    }
}

/// The same by tasks of one client that hand locks on among themselves.
pub struct SharedFace<E: Counting, L: Lock<E>> {
    table: HandoverTable<E, L>,
    site: Site<E, L>,
}

impl<E: Counting, L: Lock<E>> SharedFace<E, L> {
    /// A client whose locks lie one after the other from `locks` on, and whose tasks hand a hold on
    /// so often.
    pub fn new(client: Client<E, L>, locks: Addr, handovers_max: u32) -> Self {
        let table = HandoverTable::new(client.clone(), handovers_max);
        Self { table, site: Site { client, locks } }
    }
}

impl<E: Counting, L: Lock<E>> Subject for SharedFace<E, L> {
    type Held<'s> = local::Guard<'s, E, L>;

    through_site!(site);

    #[inline(always)]
    async fn acquire(&self, lock: u32, mode: Mode) -> Result<Self::Held<'_>, Failure> {
        Ok(self.table.acquire(self.site.addr(lock), mode).await?)
    }

    #[inline(always)]
    async fn release<'s>(&'s self, held: Self::Held<'s>) -> Result<(), Failure> {
        Ok(held.release().await?)
    }
}

/// Acquisitions and releases that block the thread.
pub struct BlockingFace<E: Park + Counting, L: Lock<E>>(Site<E, L>);

impl<E: Park + Counting, L: Lock<E>> BlockingFace<E, L> {
    /// A client whose locks lie one after the other from `locks` on.
    pub fn new(client: Client<E, L>, locks: Addr) -> Self {
        Self(Site { client, locks })
    }
}

impl<E: Park + Counting, L: Lock<E>> Subject for BlockingFace<E, L> {
    type Held<'s> = Guard<'s, E, L>;

    through_site!(0);

    #[inline(always)]
    async fn acquire(&self, lock: u32, mode: Mode) -> Result<Self::Held<'_>, Failure> {
        Ok(self.0.client.lock(self.0.addr(lock), mode)?)
    }

    #[inline(always)]
    async fn release<'s>(&'s self, held: Self::Held<'s>) -> Result<(), Failure> {
        Ok(held.unlock()?)
    }
}
