//! Records come back: the search for one that is free, and the forgetting of names nobody uses.
//!
//! A record goes round: free, staged, a name's, leaving, dead, staged again. Each step is one
//! compare-and-swap of its link, by any client; one that dies leaves it as it is. What makes each
//! safe:
//!
//! | step | why nobody is hurt |
//! | --- | --- |
//! | named to leaving | a client that enters the name makes it a name again |
//! | leaving to dead | no slot record of the living had the lock's address after the step before, and no hold that is written down, and a client that aims at it later finds the link changed |
//! | staged to free or named, its blocks emptied meanwhile | a record is staged by one client, and no other takes it while that lives: so no name is there, and nobody to use it, from before the first block is emptied until after the last. What a client does that dies is over before others see that it is dead; who lives and uses the lock under the name that it had has a slot that says so, and kept it from being forgotten |
//! | dead to staged | it is in no chain: the chain was walked to its end, and its word changed after that, so a client that walked it before sees that it must walk again, and one that was about to put the record there cannot |

use std::collections::BTreeSet;

use farlock_fabric::{Addr, Endpoint, Verb, WORDS_MAX, WideAtomics};
use farlock_locks::shelf::Shelved;
use farlock_locks::slot;

use super::emptier::Emptier;
use super::error::DirectoryError;
use super::facts::{Facts, Wanted};
use super::layout::{Chain, FACT_WORDS, Link, Staged, State, steps, unseal};
use super::{Directory, Kind, Walk, change_sealed, read_sealed};
use crate::records::read_records;

/// The word before a record in its chain.
enum Before {
    Chain,
    Record(u64, Link),
}

impl Directory {
    /// Takes a record and writes the name into it.
    pub(super) async fn stage<E: WideAtomics>(
        &self,
        endpoint: &E,
        wanted: &Wanted<'_>,
        kind: Kind,
    ) -> Result<Staged, DirectoryError> {
        let staged = self.take(endpoint, kind).await?;
        if self.layout.beyond() > 0 {
            self.wipe(endpoint, staged.record).await?;
        }
        let (addr, facts) = (self.layout.facts(staged.record), Facts::of(wanted));
        endpoint.verb(Verb::Write { addr, data: &facts.0 }).await?;
        Ok(staged)
    }

    /// Sets to zero what the dead have left of a lock in a record that had a name before.
    async fn wipe<E: Endpoint>(&self, endpoint: &E, record: u64) -> Result<(), DirectoryError> {
        if !steps().wipes || self.facts(endpoint, record).await?.are_blank() {
            return Ok(());
        }
        let lock = self.layout.lock(record);
        let bytes = self.layout.beyond();
        for offset in (0..bytes).step_by(8 * WORDS_MAX) {
            let words = ((bytes - offset) / 8).min(WORDS_MAX as u64) as usize;
            let data = &[0; WORDS_MAX][..words];
            endpoint.verb(Verb::Write { addr: lock.plus(offset), data }).await?;
        }
        Ok(())
    }

    /// Puts a prepared record first in a chain whose word is this. Returns the record where that
    /// has changed, unless others have taken it for a name that nobody uses.
    pub(super) async fn put_first<E: WideAtomics>(
        &self,
        endpoint: &E,
        number: u64,
        chain: Chain,
        staged: Staged,
        kind: Kind,
    ) -> Result<Option<Staged>, DirectoryError> {
        let Staged { record, link } = staged;
        // After the walk that found no such name: what was forgotten before it is counted.
        let highest = read_sealed(endpoint, self.layout.highest()).await?;
        let word = (kind.fresh)(highest.saturating_add(1));
        let addr = self.layout.lock(record);
        endpoint.verb(Verb::Write { addr, data: &[word as u64, (word >> 64) as u64] }).await?;
        let named = link.turned(State::Named).with(Link::NEXT, chain.first());
        if !self.change(endpoint, record, link, named).await? {
            return Ok(None);
        }
        let first = chain.beginning_with(record);
        if change_sealed(endpoint, self.layout.chain(number), chain.0, first.0).await? {
            return Ok(None);
        }
        let link = named.staged_by(endpoint.id());
        let is_mine = self.change(endpoint, record, named, link).await?;
        Ok(is_mine.then_some(Staged { record, link }))
    }

    /// Gives back a record that was prepared and is not needed.
    pub(super) async fn give_back<E: WideAtomics>(
        &self,
        endpoint: &E,
        staged: Staged,
    ) -> Result<(), DirectoryError> {
        let free = staged.link.turned(State::Free);
        self.change(endpoint, staged.record, staged.link, free).await?;
        Ok(())
    }

    /// Takes the next record that is free or can be made so.
    async fn take<E: WideAtomics>(
        &self,
        endpoint: &E,
        kind: Kind,
    ) -> Result<Staged, DirectoryError> {
        let records = u64::from(self.layout.records);
        let mut used = BTreeSet::new();
        // Twice around: others may have given one back behind the hand.
        for _ in 0..2 * records {
            endpoint.faa64(self.layout.hand(), 1).await?;
            let record = endpoint.old() as u64 % records + 1;
            let link = self.link(endpoint, record).await?;
            if let Some(staged) = self.seize(endpoint, record, link, kind, &mut used).await? {
                return Ok(staged);
            }
        }
        Err(DirectoryError::Full { names: self.capacity() })
    }

    /// Takes this record if it is free or can be made so.
    async fn seize<E: WideAtomics>(
        &self,
        endpoint: &E,
        record: u64,
        link: Link,
        kind: Kind,
        used: &mut BTreeSet<Addr>,
    ) -> Result<Option<Staged>, DirectoryError> {
        let link = match link.what() {
            Some(State::Free) => Some(link),
            Some(State::Staged) => {
                let owner = endpoint.occupant(link.owner_index());
                let is_alive = owner.is_some_and(|owner| link.is_staged_by(owner));
                (!is_alive).then_some(link)
            }
            Some(State::Named | State::Leaving) => {
                self.forget(endpoint, record, link, kind, used).await?
            }
            Some(State::Dead) => Some(link),
            None => return Err(DirectoryError::Damaged { what: "a link makes no sense" }),
        };
        let Some(link) = link else { return Ok(None) };
        if link.what() == Some(State::Dead) && !self.take_out(endpoint, record, link).await? {
            return Ok(None);
        }
        let staged = link.staged_by(endpoint.id());
        let is_mine = self.change(endpoint, record, link, staged).await?;
        Ok(is_mine.then_some(Staged { record, link: staged }))
    }

    /// Has what a lock has beyond its record emptied where nobody uses the lock. Returns how many
    /// were emptied. A name that is in use is not touched.
    ///
    /// A name is forgotten, so that its record is this client's meanwhile, and entered again: what
    /// is emptied stays its own. A newcomer that was quicker has entered it elsewhere. What
    /// [`Emptier::empty`] does may be such that nothing can end it once it has begun, as long as it
    /// is over when its endpoint counts as dead. Where it fails the name stays forgotten.
    ///
    /// A crash leaves a name as it was, or forgotten, or a record that others take.
    ///
    /// # Errors
    /// See [`DirectoryError`], and what the emptier says.
    pub(crate) async fn trim<E: WideAtomics, X: From<DirectoryError>>(
        &self,
        endpoint: &E,
        kind: Kind,
        emptier: &impl Emptier<X>,
    ) -> Result<u32, X> {
        let mut emptied = 0;
        let mut used = self.locks_in_use(endpoint, kind).await?;
        for record in 1..=u64::from(self.layout.records) {
            let lock = self.layout.lock(record);
            if used.contains(&lock) || !emptier.is_full(lock).await? {
                continue;
            }
            let link = self.link(endpoint, record).await?;
            let seized = self.seize(endpoint, record, link, kind, &mut used).await?;
            let Some(staged) = seized else { continue };
            if !steps().keeps_staged {
                self.give_back(endpoint, staged).await?;
                emptier.empty(lock).await?;
                continue;
            }
            match emptier.empty(lock).await {
                Ok(()) => emptied += 1,
                Err(error) => {
                    self.give_back(endpoint, staged).await?;
                    return Err(error);
                }
            }
            match link.what() {
                Some(State::Named | State::Leaving) => {
                    self.name_again(endpoint, staged, kind).await?;
                }
                _ => self.give_back(endpoint, staged).await?,
            }
        }
        Ok(emptied)
    }

    /// Enters the name that a record had before it was taken, unless it is there by now.
    async fn name_again<E: WideAtomics>(
        &self,
        endpoint: &E,
        mut staged: Staged,
        kind: Kind,
    ) -> Result<(), DirectoryError> {
        if self.layout.beyond() > 0 {
            self.wipe(endpoint, staged.record).await?;
        }
        let facts = self.facts(endpoint, staged.record).await?;
        let (name, number) = (facts.name()?, facts.chain(&self.layout)?);
        loop {
            endpoint.checkpoint(&staged.survivors());
            let same = |_, _, facts: &Facts| Ok((facts.name()? == name).then_some(()));
            match self.walk(endpoint, number, same).await? {
                Walk::Found(()) => return self.give_back(endpoint, staged).await,
                Walk::End(chain) => {
                    match self.put_first(endpoint, number, chain, staged, kind).await? {
                        Some(still_mine) => staged = still_mine,
                        None => return Ok(()),
                    }
                }
                Walk::Moved => {}
            }
        }
    }

    /// Forgets a name if nobody uses it. Returns its link then. `used` are locks that were in
    /// use a while ago.
    async fn forget<E: WideAtomics>(
        &self,
        endpoint: &E,
        record: u64,
        link: Link,
        kind: Kind,
        used: &mut BTreeSet<Addr>,
    ) -> Result<Option<Link>, DirectoryError> {
        let lock = self.layout.lock(record);
        if used.contains(&lock) {
            return Ok(None);
        }
        let leaving = link.turned(State::Leaving);
        if !self.change(endpoint, record, link, leaving).await? {
            return Ok(None);
        }
        *used = self.locks_in_use(endpoint, kind).await?;
        let (facts, words) = (self.layout.facts(record), FACT_WORDS as u16);
        let [facts, word, highest] = [(facts, words), (lock, 2), (self.layout.highest(), 2)]
            .map(|(addr, words)| Verb::Read { addr, words }.into());
        endpoint.chain(&[facts, word, highest]).await?;
        let mut facts = Facts([0; FACT_WORDS]);
        endpoint.copy_read(0, &mut facts.0);
        if used.contains(&lock) || facts.kind()? != kind.name {
            self.change(endpoint, record, leaving, leaving.turned(State::Named)).await?;
            return Ok(None);
        }
        // Of the lock's holders none lives, and nobody comes in: its word says all of its tokens.
        let count = (kind.count)(endpoint.link(1).old);
        let highest = unseal(self.layout.highest(), endpoint.link(2).old);
        self.raise_highest(endpoint, highest, count).await?;
        let dead = leaving.turned(State::Dead);
        Ok(self.change(endpoint, record, leaving, dead).await?.then_some(dead))
    }

    /// Raises the highest count of a lock that was forgotten, if it is lower, from what it was
    /// when it was read.
    async fn raise_highest<E: WideAtomics>(
        &self,
        endpoint: &E,
        mut read: Option<u64>,
        count: u64,
    ) -> Result<(), DirectoryError> {
        let at = self.layout.highest();
        loop {
            let highest = match read.take() {
                Some(highest) => highest,
                None => read_sealed(endpoint, at).await?,
            };
            if highest >= count || change_sealed(endpoint, at, highest, count).await? {
                return Ok(());
            }
        }
    }

    /// Takes a dead record out of its chain, and everything dead before it. `false`: others have,
    /// and use it.
    async fn take_out<E: WideAtomics>(
        &self,
        endpoint: &E,
        record: u64,
        dead: Link,
    ) -> Result<bool, DirectoryError> {
        let facts = self.facts(endpoint, record).await?;
        if self.link(endpoint, record).await? != dead {
            return Ok(false);
        }
        facts.are_sound()?;
        let number = facts.chain(&self.layout)?;
        while !self.clean(endpoint, number).await? {}
        Ok(true)
    }

    /// Takes everything dead out of a chain, and changes the chain's word. `false`: another client
    /// changed the chain meanwhile.
    async fn clean<E: WideAtomics>(
        &self,
        endpoint: &E,
        number: u64,
    ) -> Result<bool, DirectoryError> {
        let mut chain = self.chain(endpoint, number).await?;
        let mut before = Before::Chain;
        let mut record = chain.first();
        for _ in 0..=self.layout.records {
            if record == 0 {
                // Clients on this chain, or past it, learn that its records may be used anew.
                return self.set_first(endpoint, number, &mut chain, None).await;
            }
            let link = self.link(endpoint, record).await?;
            let next = link.next();
            match link.what() {
                Some(State::Named | State::Leaving) => before = Before::Record(record, link),
                Some(State::Dead) => {
                    let is_out = match &mut before {
                        Before::Chain => {
                            self.set_first(endpoint, number, &mut chain, Some(next)).await?
                        }
                        Before::Record(before, its) => {
                            let passed = its.before(next);
                            let is_out = self.change(endpoint, *before, *its, passed).await?;
                            *its = passed;
                            is_out
                        }
                    };
                    if !is_out {
                        return Ok(false);
                    }
                }
                _ => break,
            }
            record = next;
        }
        match self.is_still(endpoint, number, chain).await? {
            true => Err(DirectoryError::Damaged { what: "a chain does not end" }),
            false => Ok(false),
        }
    }

    /// Changes a chain's word: to another first record, or only so that it has changed.
    async fn set_first<E: WideAtomics>(
        &self,
        endpoint: &E,
        number: u64,
        chain: &mut Chain,
        first: Option<u64>,
    ) -> Result<bool, DirectoryError> {
        let to = chain.beginning_with(first.unwrap_or(chain.first()));
        let is_set = change_sealed(endpoint, self.layout.chain(number), chain.0, to.0).await?;
        *chain = to;
        Ok(is_set)
    }

    /// The locks that slot records of living clients name, and what is written down of holds.
    async fn locks_in_use<E: Endpoint>(
        &self,
        endpoint: &E,
        kind: Kind,
    ) -> Result<BTreeSet<Addr>, DirectoryError> {
        let living = endpoint.occupied().filter(|index| endpoint.occupant(*index).is_some());
        let records = read_records(endpoint, living).await?;
        let named = records.iter().map(|(_, record)| Addr::from_bits(record[slot::LOCK]));
        let mut locks: BTreeSet<_> = named.collect();
        // After the slots: what is written down in between is found in one of them.
        if let Some(shelf) = kind.shelf.map(|behind| self.layout.shelf(behind)) {
            let tell = |_, shelved: Shelved| {
                locks.insert(shelved.lock);
            };
            shelf.for_each(endpoint, tell).await?;
        }
        Ok(locks)
    }
}
