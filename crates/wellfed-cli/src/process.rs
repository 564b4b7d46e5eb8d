//! What the operating system says of this process.

use std::mem::MaybeUninit;

/// CPU seconds (user and system) of all threads of this process so far.
pub(crate) fn cpu_seconds() -> f64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is valid for a write of one `rusage`, which is all that getrusage(2) asks for.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: `rusage` consists of integers, for which zeros are valid should the call have failed.
    let usage = unsafe { usage.assume_init() };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_only_grows() {
        let before = cpu_seconds();
        assert!(before > 0.0 && cpu_seconds() >= before);
    }
}
