//! Memory whose size the file decides: it is asked for before it is taken, and none left is an error, not an abort.

use std::fmt;

use crate::{Error, ErrorKind, Result};

/// Says before memory is taken whether so many more bytes may be. By default they always may.
#[derive(Clone, Copy, Default)]
pub struct Ask<'a>(Option<&'a dyn Fn(usize) -> bool>);

impl<'a> Ask<'a> {
    /// Asks `allowed`, which may count what it allowed: memory that is taken stays with the decoder
    /// ([`Decoder::capacity`](crate::Decoder::capacity)).
    pub fn new(allowed: &'a dyn Fn(usize) -> bool) -> Self {
        Self(Some(allowed))
    }

    /// Makes room for `more` elements behind those that are there. The memory grows by half at least, so that adding a
    /// little many times takes linear time.
    pub(crate) fn reserve<T>(self, into: &mut Vec<T>, more: usize) -> Result<()> {
        let len = into.len().saturating_add(more);
        if len <= into.capacity() {
            return Ok(());
        }
        let len = len.max(into.capacity() / 2 * 3);
        let bytes = len.saturating_mul(size_of::<T>());
        // The old memory is there until its content was moved.
        if self.0.is_some_and(|allowed| !allowed(bytes)) {
            return Err(none(bytes, "not allowed"));
        }
        into.try_reserve_exact(len - into.len()).map_err(|_| none(bytes, "not there"))
    }

    /// Makes `vec` have at least `len` elements. What it held stays, the rest is zero.
    pub(crate) fn at_least<T: Clone + Default>(self, vec: &mut Vec<T>, len: usize) -> Result<()> {
        if vec.len() < len {
            self.reserve(vec, len - vec.len())?;
            vec.resize(len, T::default());
        }
        Ok(())
    }

    /// Makes `vec` have `len` elements, all zero.
    pub(crate) fn zeroed<T: Clone + Default>(self, vec: &mut Vec<T>, len: usize) -> Result<()> {
        vec.clear();
        if len > vec.capacity() {
            // Nothing has to be moved, so the old memory goes first.
            *vec = Vec::new();
        }
        self.at_least(vec, len)
    }
}

impl fmt::Debug for Ask<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Ask(..)" } else { "Ask(always)" })
    }
}

fn none(bytes: usize, why: &str) -> Error {
    Error::new(ErrorKind::Memory, format!("JPEG takes {bytes} bytes of memory, which are {why}"))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn memory_is_asked_for_before_it_is_taken() {
        let left = Cell::new(100);
        let allowed = |bytes| {
            let fits = bytes <= left.get();
            left.set(left.get() - if fits { bytes } else { 0 });
            fits
        };
        let (ask, mut memory) = (Ask::new(&allowed), Vec::<u16>::new());
        ask.at_least(&mut memory, 20).unwrap();
        ask.zeroed(&mut memory, 10).unwrap();
        assert_eq!((left.get(), memory.len()), (60, 10));
        let error = ask.zeroed(&mut memory, 31).unwrap_err();
        assert_eq!((error.kind(), memory.capacity()), (ErrorKind::Memory, 0));
    }

    #[test]
    fn more_than_there_is_does_not_abort() {
        let error = Ask::default().at_least(&mut Vec::<u64>::new(), usize::MAX / 16).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Memory);
    }
}
