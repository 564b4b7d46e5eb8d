//! Clocks of the kernel.

use std::time::Duration;

/// Now, by the clock that all processes of the machine share, in nanoseconds.
pub fn monotonic() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

#[cfg(target_os = "linux")]
/// CPU time of this thread, in nanoseconds.
pub(super) fn thread_cpu() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[cfg(target_os = "linux")]
/// CPU time of this process, in nanoseconds.
pub(super) fn process_cpu() -> u64 {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for a write of one `timespec`, which is all that clock_gettime(2) asks for. Should it fail,
    // the zeros stay.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    let time = Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0));
    nanoseconds(time)
}

/// As a number; five centuries fit.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
