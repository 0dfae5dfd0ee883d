//! The client's side: a channel to a server, lanes over it, and the connection that gives them.

mod at_once;
mod bell;
mod calls;
mod channel;
mod facts;
mod greeting;
mod inbox;
mod lane;
mod log;
mod looker;
mod outgoing;
mod pace;
mod remote;
mod riding;
mod ticket;
mod ties;

pub use at_once::AtOnce;
pub(super) use bell::Interrupt;
pub use bell::Unparker;
pub(super) use calls::{put_peer, take_home};
pub use lane::{TcpEndpoint, TcpKeeper, TcpLane};
pub use remote::Remote;
