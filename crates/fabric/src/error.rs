//! What can go wrong with a verb. Broken invariants are no errors: they panic.

use thiserror::Error;

/// Why a verb failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[repr(u8)]
pub enum Fault {
    /// The outcome is unknown: the verb may have taken effect, may still, or never will.
    #[error("the completion was lost; the verb may or may not have taken effect")]
    Lost,
    /// The address and length do not lie within the region.
    #[error("refused: the address is outside the region")]
    OutOfBounds,
    /// An 8-byte verb needs an 8-byte boundary, a 16-byte verb a 16-byte boundary.
    #[error("refused: the address is misaligned")]
    Misaligned,
    /// This endpoint may not do this to this region.
    #[error("refused: the endpoint has no right to do this here")]
    NoRight,
    /// The region was created anew since this endpoint attached; open it again.
    #[error("refused: the region has a new incarnation; attach again")]
    Stale,
    /// This endpoint was revoked, so none of its verbs take effect any more.
    #[error("refused: this endpoint was revoked; attach again")]
    Revoked,
    /// The receiver's mailbox has no free cell. Nothing was delivered; try again after a pause.
    #[error("refused: the receiver's mailbox is full")]
    MailboxFull,
    /// The receiver is dead. Nothing was delivered, nothing will be.
    #[error("the peer is gone")]
    PeerGone,
    /// This fabric lacks the ability (masked or 128-bit atomics, revocation, growth).
    #[error("this fabric cannot do this")]
    Unsupported,
}

impl Fault {
    /// Whether the fabric turned the verb away before it could take effect.
    pub const fn is_refusal(self) -> bool {
        !matches!(self, Self::Lost)
    }
}
