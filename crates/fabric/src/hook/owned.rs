//! A verb or chain that outlives its poster's borrow, for hooks that post it later.

use crate::addr::Addr;
use crate::endpoint::{Endpoint, Posted};
use crate::verb::{CHAIN_MAX, Link, Verb};

/// A verb with its data.
#[derive(Clone, Debug)]
enum OwnedVerb {
    Write { addr: Addr, data: Box<[u64]> },
    Other(Verb<'static>),
}

impl OwnedVerb {
    fn new(verb: Verb<'_>) -> Self {
        Self::Other(match verb {
            Verb::Write { addr, data } => return Self::Write { addr, data: data.into() },
            Verb::Read { addr, words } => Verb::Read { addr, words },
            Verb::Cas64 { addr, compare, swap } => Verb::Cas64 { addr, compare, swap },
            Verb::Faa64 { addr, add } => Verb::Faa64 { addr, add },
            Verb::MaskedCas64 { addr, op } => Verb::MaskedCas64 { addr, op },
            Verb::MaskedFaa64 { addr, op } => Verb::MaskedFaa64 { addr, op },
            Verb::MaskedCas128 { addr, op, hint } => Verb::MaskedCas128 { addr, op, hint },
            Verb::MaskedFaa128 { addr, op, hint } => Verb::MaskedFaa128 { addr, op, hint },
            Verb::Send { to, message } => Verb::Send { to, message },
        })
    }

    fn verb(&self) -> Verb<'_> {
        match self {
            Self::Write { addr, data } => Verb::Write { addr: *addr, data },
            Self::Other(verb) => *verb,
        }
    }
}

/// What a protocol posted: one verb, or a chain.
#[derive(Clone, Debug)]
pub(super) struct OwnedPost {
    links: Vec<(OwnedVerb, bool)>,
    chain: bool,
}

impl OwnedPost {
    pub(super) fn verb(verb: Verb<'_>) -> Self {
        Self { links: vec![(OwnedVerb::new(verb), false)], chain: false }
    }

    pub(super) fn chain(chain: &[Link<'_>]) -> Self {
        let links = chain.iter().map(|link| (OwnedVerb::new(link.verb), link.fence)).collect();
        Self { links, chain: true }
    }

    /// How many links complete on their own. A single verb has none, nor has a chain of a length
    /// that is refused as a whole.
    pub(super) fn links(&self) -> usize {
        let complete = self.chain && self.links.len() <= CHAIN_MAX;
        if complete { self.links.len() } else { 0 }
    }

    /// How many verbs may have read something.
    pub(super) fn readers(&self) -> usize {
        if self.chain { self.links() } else { 1 }
    }

    /// Posts it as it was posted.
    pub(super) fn post_to<E: Endpoint>(&self, endpoint: &E) -> Posted {
        if self.chain {
            let links: Vec<Link<'_>> = self
                .links
                .iter()
                .map(|(verb, fence)| Link { verb: verb.verb(), fence: *fence })
                .collect();
            endpoint.post_chain(&links)
        } else {
            endpoint.post(self.links[0].0.verb())
        }
    }

    /// How many words the `index`-th verb reads at most.
    pub(super) fn read_words(&self, index: usize) -> usize {
        match self.links[index].0 {
            OwnedVerb::Other(Verb::Read { words, .. }) => usize::from(words),
            _ => 0,
        }
    }
}
