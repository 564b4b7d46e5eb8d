//! placeholder
use super::{Output, Place, Row, scalar};
/// # Safety
/// None yet.
pub(super) unsafe fn row(row: Row<'_>, output: &Output<'_>, place: Place<'_>) {
    scalar::row(row, output, place);
}
