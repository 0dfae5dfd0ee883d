//! How clients of the queue locks tell each other, and wait to be told, by [notes](super::note).

use farlock_fabric::{Endpoint, EndpointId, Fault, Mailbox, Nanos, Patience, Wait, Woken};

use crate::repair;
use crate::site::{Outcome, Site};

pub use super::note::{Head, Kind, Note, Released, is_newer, next_generation, next_note};

/// Waits for mail or the death of one of `peers`. `Ok(true)` if one died.
///
/// Mail is taken without a verb, so an endpoint that may do nothing any more would look for it for
/// ever: where a wait ends without a reason, a verb tells.
pub async fn await_mail<E: Endpoint>(
    site: &Site<'_, E>,
    peers: &[EndpointId],
    patience: Patience,
) -> Outcome<bool> {
    let mail = Some(site.slot());
    let wait = Wait { mail, peers, patience, ..Wait::default() };
    let woken = site.endpoint.wait(wait).await;
    if woken == Woken::Changed {
        site.endpoint.read64(site.lock).await?;
    }
    Ok(matches!(woken, Woken::PeerGone(_)))
}

/// How long a holder that must hear from its successor waits for other news, in nanoseconds.
const SUCCESSOR_CHECK_NS: Nanos = 10_000_000;

/// Waits for the successor's report, which is on its way. `None`: nobody living can send it, or the
/// lock was repaired.
pub async fn await_successor<E: Endpoint>(
    site: &Site<'_, E>,
    generation: u64,
    patience: Patience,
) -> Outcome<Option<Mailbox>> {
    loop {
        let note = next_note(site, generation);
        if let Some(successor) = site.successor() {
            return Ok(Some(successor));
        }
        if note.is_some_and(|note| note.kind == Kind::Reset) {
            return Ok(None);
        }
        site.endpoint.checkpoint(&[generation]);
        if !repair::await_report(site, patience, SUCCESSOR_CHECK_NS).await? {
            return Ok(None);
        }
    }
}

/// How long to wait before sending again to a full mailbox, in nanoseconds.
pub(crate) const MAILBOX_FULL_RETRY_NS: Nanos = 5_000;

/// Sends a note, waiting while the receiver's mailbox is full: stale notes fill it only until the
/// receiver next looks. `Ok(false)` if the receiver is dead.
pub async fn tell<E: Endpoint>(site: &Site<'_, E>, to: Mailbox, note: &Note) -> Outcome<bool> {
    loop {
        match site.endpoint.send(to, note.encode()).await {
            Ok(()) => return Ok(true),
            Err(Fault::PeerGone) => {
                site.peer_died(to.endpoint);
                return Ok(false);
            }
            Err(Fault::MailboxFull) => {}
            Err(fault) => return Err(fault),
        }
        site.endpoint.checkpoint(&[]);
        let peers = [to.endpoint];
        let interval = Some(MAILBOX_FULL_RETRY_NS);
        site.endpoint.wait(Wait { peers: &peers, interval, ..Wait::default() }).await;
    }
}
