//! What a run says that checked nothing, or not all.

/// Nobody objected, but what was asked for was not checked, or not to its end.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unchecked(pub String);

impl Unchecked {
    /// The exit status of a program that ends with this.
    pub const STATUS: u8 = 3;

    /// What was asked for makes no sense, or is not there.
    #[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` has")]
    pub fn because(error: anyhow::Error) -> Self {
        Self(format!("{error:#}"))
    }

    /// The same of any other error.
    pub fn because_of(error: impl Into<anyhow::Error>) -> Self {
        Self::because(error.into())
    }
}
