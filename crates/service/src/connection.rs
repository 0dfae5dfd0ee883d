//! The fabric that sessions connect by. Only what [`Connection`] promises is asked of it elsewhere.

use farlock_fabric::{Connection, Host};

pub(crate) type Region = Host;
pub(crate) type Endpoint = <Region as Connection>::Endpoint;
pub(crate) type Lane = <Region as Connection>::Lane;
pub(crate) type Keeper = <Region as Connection>::Keeper;
pub(crate) type Unparker = <Region as Connection>::Unparker;
