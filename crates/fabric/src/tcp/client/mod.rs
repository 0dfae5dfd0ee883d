//! The client's side: a channel to a server, lanes over it, and the connection that gives them.

mod bell;
mod calls;
mod channel;
mod inbox;
mod lane;
mod remote;

pub(super) use bell::Interrupt;
pub use bell::Unparker;
pub(super) use calls::put_peer;
pub use lane::{TcpEndpoint, TcpKeeper, TcpLane};
pub use remote::Remote;
