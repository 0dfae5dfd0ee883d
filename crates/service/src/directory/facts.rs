//! What a record says of its lock: its name and its kind.

use super::error::DirectoryError;
use super::layout::{
    CHECK, FACT_WORDS, KIND, KIND_BYTES_MAX, LENGTH, Layout, NAME, NAME_BYTES_MAX, mix,
};

/// A name that is looked for.
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) kind: &'a str,
    hash: u64,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(name: &'a str, kind: &'a str) -> Result<Self, DirectoryError> {
        check_name(name)?;
        assert!(
            !kind.is_empty() && kind.len() <= KIND_BYTES_MAX && kind.is_ascii(),
            "a kind is named by its program, in 1 to 16 ASCII characters"
        );
        Ok(Self { name, kind, hash: hash(name.as_bytes()) })
    }

    /// Whether these are the facts of a record of this name.
    pub(super) fn is_of(&self, facts: &Facts) -> Result<bool, DirectoryError> {
        if facts.name()? != self.name.as_bytes() {
            return Ok(false);
        }
        let found = facts.kind()?;
        if found == self.kind {
            return Ok(true);
        }
        let (name, wanted) = (self.name.to_owned(), self.kind.to_owned());
        Err(DirectoryError::Kind { name, found, wanted })
    }

    /// The number of the chain that this name is in.
    pub(super) fn chain(&self, layout: &Layout) -> u64 {
        self.hash % layout.chains
    }
}

/// Whether this can be the name of a lock: 1 to 255 bytes of UTF-8 without NUL.
///
/// # Errors
/// [`DirectoryError::Name`].
pub fn check_name(name: &str) -> Result<(), DirectoryError> {
    let why = if name.is_empty() {
        "it is empty"
    } else if name.len() > NAME_BYTES_MAX {
        "it is longer than 255 bytes"
    } else if name.contains('\0') {
        "it contains NUL"
    } else {
        return Ok(());
    };
    Err(DirectoryError::Name { name: name.to_owned(), why })
}

/// FNV-1a, then a finaliser that spreads it over all bits. The same on every machine.
pub(super) fn hash(name: &[u8]) -> u64 {
    let fnv = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(fnv)
}

/// The words of a record after its lock's line, as a client wrote them.
pub(super) struct Facts(pub(super) [u64; FACT_WORDS]);

impl Facts {
    pub(super) fn of(wanted: &Wanted<'_>) -> Self {
        let mut facts = Self([0; FACT_WORDS]);
        facts.0[LENGTH] = wanted.name.len() as u64;
        facts.put(KIND, wanted.kind.as_bytes());
        facts.put(NAME, wanted.name.as_bytes());
        facts.0[CHECK] = facts.check();
        facts
    }

    /// What all words but one come to.
    fn check(&self) -> u64 {
        let others = self.0.iter().enumerate().filter(|(at, _)| *at != CHECK);
        others.fold(0, |sum, (_, word)| mix(sum ^ word))
    }

    /// Whether nobody has ever written them.
    pub(super) fn are_blank(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Whether they are as they were written.
    pub(super) fn are_sound(&self) -> Result<(), DirectoryError> {
        match self.check() == self.0[CHECK] {
            true => Ok(()),
            false => Err(DirectoryError::Damaged { what: "a record was overwritten" }),
        }
    }

    /// The number of the chain that this name is in.
    pub(super) fn chain(&self, layout: &Layout) -> Result<u64, DirectoryError> {
        Ok(hash(&self.name()?) % layout.chains)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (word, chunk) in self.0[at..].iter_mut().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(padded);
        }
    }

    fn bytes(&self, at: usize, length: usize) -> Vec<u8> {
        let words = self.0[at..].iter().flat_map(|word| word.to_le_bytes());
        words.take(length).collect()
    }

    pub(super) fn name(&self) -> Result<Vec<u8>, DirectoryError> {
        match self.0[LENGTH] {
            length @ 1..=255 => Ok(self.bytes(NAME, length as usize)),
            _ => Err(DirectoryError::Damaged { what: "a name's length is out of range" }),
        }
    }

    pub(super) fn kind(&self) -> Result<String, DirectoryError> {
        let bytes = self.bytes(KIND, KIND_BYTES_MAX);
        let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        if length == 0 || !bytes[..length].is_ascii() {
            return Err(DirectoryError::Damaged { what: "a kind's name is none" });
        }
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::LOCK_KIND;

    #[test]
    fn facts_that_were_overwritten_are_not_sound() {
        let wanted = Wanted::new("ledger", LOCK_KIND.name).unwrap();
        let facts = Facts::of(&wanted);
        assert!(facts.are_sound().is_ok());
        for word in 0..FACT_WORDS {
            for bit in [0, 17, 63] {
                let mut damaged = Facts(facts.0);
                damaged.0[word] ^= 1 << bit;
                assert!(damaged.are_sound().is_err(), "bit {bit} of word {word}");
            }
        }
    }
}
