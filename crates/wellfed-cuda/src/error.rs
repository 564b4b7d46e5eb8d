//! stub
/// Result.
pub type Result<T, E = Error> = std::result::Result<T, E>;
/// Error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A call makes no sense.
    Argument(String),
}
