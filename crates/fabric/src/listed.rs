//! Enumerations that know their variants.

/// Declares an enumeration, and the list of its variants in their order: `ALL`.
///
/// ```
/// farlock_fabric::listed! {
///     /// A colour.
///     #[derive(PartialEq, Debug)]
///     pub enum Colour {
///         /// Of the sea.
///         Blue,
///         /// Of grass.
///         Green,
///     }
/// }
/// assert_eq!(Colour::ALL, [Colour::Blue, Colour::Green]);
/// ```
#[macro_export]
macro_rules! listed {
    ($(#[$attribute:meta])* $visible:vis enum $name:ident {
        $($(#[$of_variant:meta])* $variant:ident $(= $value:expr)?),+ $(,)?
    }) => {
        $(#[$attribute])*
        $visible enum $name {
            $($(#[$of_variant])* $variant $(= $value)?),+
        }

        impl $name {
            /// All of them, in order.
            $visible const ALL: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant),+];
        }
    };
}
