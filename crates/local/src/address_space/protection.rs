//! What may be done with memory: a set of read, write and execute.

use std::fmt;
use std::ops::BitOr;

/// What may be done with the memory of an area.
///
/// ```
/// use farlock_local::address_space::Protection;
///
/// let data = Protection::READ | Protection::WRITE;
/// assert!(data.allows(Protection::READ) && !data.allows(Protection::EXECUTE));
/// assert_eq!(format!("{data:?}"), "rw-");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Protection(pub(super) u8);

impl Protection {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// To read.
    pub const READ: Self = Self(1);
    /// To write.
    pub const WRITE: Self = Self(2);
    /// To execute.
    pub const EXECUTE: Self = Self(4);

    /// Whether all of `access` is allowed.
    #[must_use]
    pub const fn allows(self, access: Self) -> bool {
        self.0 & access.0 == access.0
    }
}

impl BitOr for Protection {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |access, letter| if self.allows(access) { letter } else { '-' };
        let [read, write] = [letter(Self::READ, 'r'), letter(Self::WRITE, 'w')];
        write!(f, "{read}{write}{}", letter(Self::EXECUTE, 'x'))
    }
}
