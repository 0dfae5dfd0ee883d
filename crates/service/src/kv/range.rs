//! Ranges of keys.

use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

/// Keys from one to another, in the order of their bytes: `a..b`, `a..=b`, `a..`, `..b`, `..=b`,
/// `..`, or two bounds. The keys are whatever has bytes, owned or not. (Of the standard library's
/// [`RangeBounds`] a reference in a range would have to be told which of several it is.)
pub trait KeyRange {
    /// The keys at both ends.
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

macro_rules! is_range_of_keys {
    ($($range:ty),+) => {
        $(impl<K: AsRef<[u8]>> KeyRange for $range {
            fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
                let own = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
                (own(RangeBounds::<K>::start_bound(&self)), own(RangeBounds::<K>::end_bound(&self)))
            }
        })+
    };
}

is_range_of_keys!(Range<K>, RangeInclusive<K>, RangeFrom<K>, RangeTo<K>, RangeToInclusive<K>);
is_range_of_keys!((Bound<K>, Bound<K>));

impl KeyRange for RangeFull {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

/// The keys that begin so.
pub(super) fn beginning_with(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX);
    let end = last.map_or(Bound::Unbounded, |last| {
        let mut end = prefix[..=last].to_vec();
        end[last] += 1;
        Bound::Excluded(end)
    });
    (Bound::Included(prefix.to_vec()), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_of_whatever_has_bytes() {
        let (text, bytes) = ("a".to_owned(), b"b".to_vec());
        let own = |key: &str| key.as_bytes().to_vec();
        let between = (Bound::Included(own("a")), Bound::Excluded(own("b")));
        assert_eq!(("a".."b").into_bounds(), between);
        assert_eq!((b"a"..b"b").into_bounds(), between);
        assert_eq!((text.clone().."b".to_owned()).into_bounds(), between);
        assert_eq!((&text..).into_bounds(), (Bound::Included(own("a")), Bound::Unbounded));
        assert_eq!((..=&bytes).into_bounds(), (Bound::Unbounded, Bound::Included(own("b"))));
        let behind = (Bound::Excluded(&bytes), Bound::Unbounded);
        assert_eq!(behind.into_bounds(), (Bound::Excluded(own("b")), Bound::Unbounded));
        assert_eq!((..).into_bounds(), (Bound::Unbounded, Bound::Unbounded));
    }

    #[test]
    fn what_begins_with_a_prefix_ends_before_what_does_not() {
        let end = |prefix: &[u8]| beginning_with(prefix).1;
        assert_eq!(end(b"ab"), Bound::Excluded(b"ac".to_vec()));
        assert_eq!(end(b"a\xff\xff"), Bound::Excluded(b"b".to_vec()));
        assert_eq!((end(b""), end(b"\xff")), (Bound::Unbounded, Bound::Unbounded));
    }
}
