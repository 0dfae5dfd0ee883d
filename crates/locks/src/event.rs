//! What happens to locks, as typed values: metrics, traces and tests read the same stream.

use farlock_fabric::{Addr, EndpointId};

/// Something that happened at this client beyond the ordinary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A message matched no lock this slot awaits or holds; it was dropped.
    StaleMessage {
        /// The lock the message names.
        lock: Addr,
    },
    /// This client found a peer dead that it was waiting for.
    PeerDied {
        /// The lock.
        lock: Addr,
        /// The peer, or nobody where only its absence was seen.
        peer: EndpointId,
    },
    /// This client took over a broken lock and repaired it.
    Repaired {
        /// The lock.
        lock: Addr,
        /// The generation that began.
        generation: u64,
        /// How many readers had died within.
        dead_readers: u64,
    },
    /// This client was refused the lock and asked again: a retry, of a lock whose waiters retry.
    Retried {
        /// The lock.
        lock: Addr,
    },
    /// What this client had claimed of the lock it gave back, since that had taken it longer than
    /// others wait: an abort, of a lock that has such a time.
    Aborted {
        /// The lock.
        lock: Addr,
    },
    /// The lock was repaired by another client while this client was in line; it began again.
    Restarted {
        /// The lock.
        lock: Addr,
    },
    /// This holder's lease was over when it released; it left the lock's word alone.
    Expired {
        /// The lock.
        lock: Addr,
    },
    /// This holder's lock was repaired while it held it; there was nothing left to release.
    Superseded {
        /// The lock.
        lock: Addr,
    },
}

/// How often each kind of event happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventCounts {
    /// [`Event::StaleMessage`].
    pub stale_messages: u64,
    /// [`Event::PeerDied`].
    pub peers_died: u64,
    /// [`Event::Repaired`].
    pub repaired: u64,
    /// [`Event::Retried`].
    pub retried: u64,
    /// [`Event::Aborted`].
    pub aborted: u64,
    /// [`Event::Restarted`].
    pub restarted: u64,
    /// [`Event::Expired`].
    pub expired: u64,
    /// [`Event::Superseded`].
    pub superseded: u64,
}

impl EventCounts {
    /// Counts one more event.
    pub fn add(&mut self, event: Event) {
        let counter = match event {
            Event::StaleMessage { .. } => &mut self.stale_messages,
            Event::PeerDied { .. } => &mut self.peers_died,
            Event::Repaired { .. } => &mut self.repaired,
            Event::Retried { .. } => &mut self.retried,
            Event::Aborted { .. } => &mut self.aborted,
            Event::Restarted { .. } => &mut self.restarted,
            Event::Expired { .. } => &mut self.expired,
            Event::Superseded { .. } => &mut self.superseded,
        };
        *counter += 1;
    }
}

#[cfg(test)]
mod tests {
    use farlock_fabric::RegionId;

    use super::*;

    #[test]
    fn each_event_is_counted_once_and_by_its_kind() {
        let (lock, peer) = (Addr::new(RegionId(0), 64), EndpointId { index: 1, incarnation: 1 });
        let mut counts = EventCounts::default();
        for event in [
            Event::StaleMessage { lock },
            Event::PeerDied { lock, peer },
            Event::Repaired { lock, generation: 1, dead_readers: 0 },
            Event::Retried { lock },
            Event::Aborted { lock },
            Event::Restarted { lock },
            Event::Expired { lock },
            Event::Superseded { lock },
        ] {
            let fresh = counts;
            counts.add(event);
            counts.add(event);
            let all = |counts: EventCounts| {
                let EventCounts {
                    stale_messages,
                    peers_died,
                    repaired,
                    retried,
                    aborted,
                    restarted,
                    expired,
                    superseded,
                } = counts;
                [
                    stale_messages,
                    peers_died,
                    repaired,
                    retried,
                    aborted,
                    restarted,
                    expired,
                    superseded,
                ]
            };
            let added: Vec<u64> =
                all(counts).iter().zip(all(fresh)).map(|(now, before)| now - before).collect();
            let mut sorted = added.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 0, 0, 0, 0, 0, 0, 2], "{event:?}");
        }
        let each = EventCounts {
            stale_messages: 2,
            peers_died: 2,
            repaired: 2,
            retried: 2,
            aborted: 2,
            restarted: 2,
            expired: 2,
            superseded: 2,
        };
        assert_eq!(counts, each);
    }
}
