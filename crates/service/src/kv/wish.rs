//! What operations want of a key, given the value that it has.

use std::borrow::Cow;

use super::error::KvError;
use super::value::Term;

/// What is to become of a key.
pub(super) enum Wish<'v, T> {
    /// Nothing.
    Leave(T),
    /// It gets this value, which ends so.
    Put(Cow<'v, [u8]>, Term, T),
    /// It has no value any more.
    Remove(T),
}

/// The value of a key, and when it ends.
pub(super) type Live<'a> = (&'a [u8], Term);

/// What is wanted, or why nothing is.
type Wished<'v, T> = Result<Wish<'v, T>, KvError>;

/// What an operation wants of a key.
pub(super) trait Wishes<'v, T> {
    /// Told the value that it has: more than once, where that is changed meanwhile.
    fn wish(&mut self, old: Option<Live<'_>>) -> Wished<'v, T>;

    /// The answer of one that gives a value, whatever the value was; `None` if that counts.
    fn blind(&self) -> Option<T> {
        None
    }
}

impl<'v, T, W: FnMut(Option<Live<'_>>) -> Wished<'v, T>> Wishes<'v, T> for W {
    #[inline]
    fn wish(&mut self, old: Option<Live<'_>>) -> Wished<'v, T> {
        self(old)
    }
}

/// It gets this value.
struct Put<'v>(Cow<'v, [u8]>, Term);

impl<'v> Wishes<'v, ()> for Put<'v> {
    #[inline]
    fn wish(&mut self, _: Option<Live<'_>>) -> Wished<'v, ()> {
        Ok(Wish::Put(self.0.clone(), self.1, ()))
    }

    #[inline]
    fn blind(&self) -> Option<()> {
        Some(())
    }
}

/// It gets this value.
pub(super) fn put<'v>(value: impl Into<Cow<'v, [u8]>>, term: Term) -> impl Wishes<'v, ()> {
    Put(value.into(), term)
}

/// It gets this value if it has none.
pub(super) fn insert<'v>(value: impl Into<Cow<'v, [u8]>>, term: Term) -> impl Wishes<'v, bool> {
    let value = value.into();
    move |old: Option<Live<'_>>| {
        Ok(match old {
            None => Wish::Put(value.clone(), term, true),
            Some(_) => Wish::Leave(false),
        })
    }
}

/// It gets this value if it has another one.
pub(super) fn replace<'v>(value: impl Into<Cow<'v, [u8]>>, term: Term) -> impl Wishes<'v, bool> {
    let value = value.into();
    move |old: Option<Live<'_>>| {
        Ok(match old {
            Some(_) => Wish::Put(value.clone(), term, true),
            None => Wish::Leave(false),
        })
    }
}

/// It gets this value if it has the one that is expected; when it ends stays.
pub(super) fn compare_and_set<'v>(
    expected: impl AsRef<[u8]>,
    value: impl Into<Cow<'v, [u8]>>,
) -> impl Wishes<'v, bool> {
    let value = value.into();
    move |old: Option<Live<'_>>| {
        Ok(match old {
            Some((old, term)) if old == expected.as_ref() => Wish::Put(value.clone(), term, true),
            _ => Wish::Leave(false),
        })
    }
}

/// Its number gets larger by this, and is told; when it ends stays.
pub(super) fn add(by: i64) -> impl Wishes<'static, i64> {
    move |old: Option<Live<'_>>| {
        let none = (Some(0), Term::default());
        let (old, term) = old.map_or(none, |(old, term)| (number(old), term));
        let old = old.ok_or(KvError::NotANumber)?;
        let sum = old.checked_add(by).ok_or(KvError::Overflow)?;
        Ok(Wish::Put(sum.to_string().into_bytes().into(), term, sum))
    }
}

/// It gets what is made of the value that it has, if that is anything; when it ends stays.
pub(super) fn update(
    mut change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
) -> impl Wishes<'static, Option<Vec<u8>>> {
    move |old: Option<Live<'_>>| {
        let (old, term) = old.map_or((None, Term::default()), |(old, term)| (Some(old), term));
        Ok(match change(old) {
            Some(new) => Wish::Put(new.clone().into(), term, Some(new)),
            None => Wish::Remove(None),
        })
    }
}

/// It has no value any more; whether it had one is told.
pub(super) fn remove() -> impl Wishes<'static, bool> {
    |old: Option<Live<'_>>| Ok(Wish::Remove(old.is_some()))
}

/// The number that a value is.
fn number(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}
