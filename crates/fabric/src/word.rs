//! Packed words, declared once.
//!
//! [`word!`](crate::word!) takes the fields of a word, lowest first, and derives everything else:
//! masks, readers, builders, `Debug`, the rendered table of the documentation, and a compile-time
//! check that the fields tile the word.

/// A field of a packed word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// The field's name.
    pub name: &'static str,
    /// Its lowest bit.
    pub shift: u32,
    /// Bits that it holds, 1 to 64.
    pub bits: u32,
}

impl Field {
    /// The largest value the field holds.
    #[inline]
    pub const fn max(self) -> u64 {
        if self.bits == 64 { u64::MAX } else { (1 << self.bits) - 1 }
    }

    /// The bits of the field in its word.
    #[inline]
    pub const fn mask(self) -> u128 {
        (self.max() as u128) << self.shift
    }

    /// The field's top bit in its word: its boundary in a masked fetch-and-add.
    #[inline]
    pub const fn top(self) -> u128 {
        1 << (self.shift + self.bits - 1)
    }

    /// `value` in the field's place. Excess bits are cut: counters wrap within their field.
    #[inline]
    pub const fn place(self, value: u64) -> u128 {
        ((value & self.max()) as u128) << self.shift
    }

    /// The field's value in `word`.
    #[inline]
    pub const fn of(self, word: u128) -> u64 {
        (word >> self.shift) as u64 & self.max()
    }

    /// By how much `count` is ahead of `other`, behind if negative, where this field's values wrap:
    /// the nearer of the two ways round.
    #[inline]
    pub const fn ahead(self, count: u64, other: u64) -> i64 {
        let unused = u64::BITS - self.bits;
        (count.wrapping_sub(other) << unused) as i64 >> unused
    }
}

/// The table of a word's fields, as Markdown, highest field first as papers draw them.
pub fn table(fields: &[Field]) -> String {
    let mut out = String::from("| field | bits | lowest bit |\n| --- | --- | --- |\n");
    for field in fields.iter().rev() {
        out += &format!("| {} | {} | {} |\n", field.name, field.bits, field.shift);
    }
    out
}

/// Declares a packed word of 64 or 128 bits: per field its constant, its reader and its width,
/// lowest field first.
///
/// ```
/// farlock_fabric::word! {
///     /// A ticket lock.
///     pub struct Ticket: u64 {
///         /// The ticket being served.
///         SERVING serving: 32,
///         /// The next ticket to give away.
///         NEXT next: 32,
///     }
/// }
/// let w = Ticket::new().with(Ticket::NEXT, 7);
/// assert_eq!((w.next(), w.serving()), (7, 0));
/// assert_eq!(format!("{w:?}"), "Ticket { serving: 0, next: 7 }");
/// assert_eq!(Ticket::NEXT.mask(), 0xffff_ffff << 32);
/// assert!(Ticket::table().contains("| next | 32 | 32 |"));
/// ```
///
/// A field may hold fewer bits than it takes up. Those above are never set, nor carried into:
///
/// ```
/// farlock_fabric::word! {
///     /// A count that a test can see wrap.
///     pub struct Count: u64 {
///         /// What is counted.
///         COUNT count: 48 => 3,
///         /// Where it would lie anyway.
///         FLAGS flags: 16,
///     }
/// }
/// assert_eq!((Count::COUNT.max(), Count::FLAGS.shift), (7, 48));
/// ```
///
/// Fields that do not tile the word do not compile:
///
/// ```compile_fail
/// farlock_fabric::word! {
///     /// Four bits are missing.
///     pub struct Short: u64 {
///         /// All there is.
///         ONLY only: 60,
///     }
/// }
/// ```
#[macro_export]
macro_rules! word {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident: $repr:ty {
            $($(#[$doc:meta])* $constant:ident $field:ident: $bits:expr $(=> $held:expr)?,)+
        }
    ) => {
        $(#[$meta])*
        ///
        /// Fields, lowest first:
        ///
        $(#[doc = concat!("* `", stringify!($field), "`: ", stringify!($bits), " bits")])+
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        $vis struct $name(pub $repr);

        const _: () = {
            assert!(0 $(+ $bits)+ == <$repr>::BITS, "the fields do not tile the word");
            $(
                let held = $crate::word!(@held $bits $(=> $held)?);
                assert!(held >= 1 && held <= 64 && held <= $bits, "a field has 1 to 64 bits");
            )+
        };

        // A private word seldom uses everything a word has.
        #[allow(dead_code)]
        impl $name {
            $crate::word!(
                @fields $vis (0); $([$(#[$doc])*] $constant $field $bits $(=> $held)?;)+
            );

            /// Every field, lowest first.
            $vis const FIELDS: &'static [$crate::word::Field] = &[$(Self::$constant),+];

            /// The top bit of every field: the boundary of a masked fetch-and-add on this word.
            $vis const BOUNDARY: $repr = (0 $(| Self::$constant.top())+) as $repr;

            /// The word with every field zero.
            #[inline]
            $vis const fn new() -> Self {
                Self(0)
            }

            /// This word with `value` in `field`. Excess bits are cut: counters wrap.
            #[inline]
            #[must_use]
            $vis const fn with(self, field: $crate::word::Field, value: u64) -> Self {
                Self((self.0 & !(field.mask() as $repr)) | field.place(value) as $repr)
            }

            /// The fields as a Markdown table.
            $vis fn table() -> String {
                $crate::word::table(Self::FIELDS)
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                let mut out = f.debug_struct(stringify!($name));
                for field in Self::FIELDS {
                    out.field(field.name, &field.of(u128::from(self.0)));
                }
                out.finish()
            }
        }
    };
    (@held $bits:expr) => { $bits };
    (@held $bits:expr => $held:expr) => { $held };
    (@fields $vis:vis ($shift:expr);) => {};
    (@fields $vis:vis ($shift:expr);
        [$($doc:tt)*] $constant:ident $field:ident $bits:expr $(=> $held:expr)?; $($rest:tt)*
    ) => {
        $($doc)*
        $vis const $constant: $crate::word::Field = $crate::word::Field {
            name: stringify!($field),
            shift: $shift,
            bits: $crate::word!(@held $bits $(=> $held)?),
        };

        $($doc)*
        #[inline]
        $vis const fn $field(self) -> u64 {
            Self::$constant.of(self.0 as u128)
        }

        $crate::word!(@fields $vis ($shift + $bits); $($rest)*);
    };
}

#[cfg(test)]
mod tests {
    crate::word! {
        /// Every kind of field.
        struct Mixed: u128 {
            /// One bit.
            FLAG flag: 1,
            /// Crosses no half.
            LOW low: 63,
            /// A whole half.
            HIGH high: 64,
        }
    }

    #[test]
    fn fields_do_not_touch_each_other() {
        let w = Mixed::new().with(Mixed::LOW, u64::MAX).with(Mixed::HIGH, 5);
        assert_eq!((w.flag(), w.low(), w.high()), (0, u64::MAX >> 1, 5));
        let w = w.with(Mixed::FLAG, 3).with(Mixed::LOW, 0);
        assert_eq!(w.0, 5 << 64 | 1);
        assert_eq!(Mixed::BOUNDARY, 1 | 1 << 63 | 1 << 127);
        assert!(Mixed::table().ends_with("| flag | 1 | 0 |\n"));
        assert_eq!(format!("{w:?}"), "Mixed { flag: 1, low: 0, high: 5 }");
    }

    crate::word! {
        /// A field that holds less than it takes up.
        struct Narrow: u64 {
            /// Three of its bits.
            COUNT count: 32 => 3,
            /// Lies where it would otherwise.
            OTHER other: 32,
        }
    }

    #[test]
    fn a_narrow_field_wraps_early_and_leaves_the_rest_alone() {
        let w = Narrow::new().with(Narrow::OTHER, 9).with(Narrow::COUNT, 8 + 5);
        assert_eq!((w.count(), w.other(), w.0), (5, 9, 9 << 32 | 5));
        assert_eq!((Narrow::COUNT.mask(), Narrow::BOUNDARY), (7, 1 << 2 | 1 << 63));
    }

    #[test]
    fn of_two_counts_that_wrap_the_nearer_way_round_tells_which_is_ahead() {
        let ahead = |count, other| Narrow::COUNT.ahead(count, other);
        assert_eq!([ahead(5, 5), ahead(0, 7), ahead(2, 7), ahead(7, 2)], [0, 1, 3, -3]);
        assert_eq!(ahead(4, 0), -4, "half way round is behind");
        assert_eq!(Mixed::HIGH.ahead(0, u64::MAX), 1);
    }
}
