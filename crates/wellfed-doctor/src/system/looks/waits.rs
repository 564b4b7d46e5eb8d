//! What a thread waits for, by the system call that it is in: `/proc/PID/task/TID/syscall`.

use std::{fs, os::unix::ffi::OsStrExt};

use super::memory::Memory;

/// What a thread does at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Doing {
    /// It runs, or would if there was a core.
    #[default]
    Runs,
    /// A file, or what a file system does besides.
    File,
    /// Memory that is not there yet: a mapped file's, or what was swapped out.
    Fault,
    /// Another end of the network, or of a socket on this machine.
    Socket,
    /// Another process or thread, at the other end of a pipe.
    Pipe,
    /// A lock or a signal within the process; with its address.
    Lock(u64),
    /// A lock that processes share.
    SharedLock,
    /// A lock on a file.
    FileLock,
    /// A child that is to end.
    Child,
    /// Time to pass.
    Sleep,
    /// A device.
    Device,
    /// Anything else.
    Other,
}

impl Doing {
    /// As records call it; nothing for what runs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Runs => "",
            Self::File => "file",
            Self::Fault => "fault",
            Self::Socket => "socket",
            Self::Pipe => "pipe",
            Self::Lock(_) => "lock",
            Self::SharedLock => "shared-lock",
            Self::FileLock => "file-lock",
            Self::Child => "child",
            Self::Sleep => "sleep",
            Self::Device => "device",
            Self::Other => "other",
        }
    }
}

/// What the text of that file says of a thread of process `pid`. `None` if it makes no sense.
pub(super) fn doing(pid: u32, text: &[u8]) -> Option<Doing> {
    let text = std::str::from_utf8(text).ok()?.trim_end();
    if text == "running" {
        return Some(Doing::Runs);
    }
    let mut words = text.split(' ');
    let number: i64 = words.next()?.parse().ok()?;
    if number < 0 {
        return Some(Doing::Fault);
    }
    let arguments: Vec<u64> =
        words.map_while(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()).collect();
    let first = arguments.first().copied()?;
    let second = arguments.get(1).copied()?;
    Some(match number {
        libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_readv
        | libc::SYS_preadv
        | libc::SYS_preadv2
        | libc::SYS_write
        | libc::SYS_pwrite64
        | libc::SYS_writev
        | libc::SYS_pwritev
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_sync_file_range
        | libc::SYS_ioctl
        | libc::SYS_close
        | libc::SYS_lseek
        | libc::SYS_fstat
        | libc::SYS_ftruncate
        | libc::SYS_fallocate => descriptor(pid, first),
        // The one written to may be slow as well; the one read from is the likelier.
        libc::SYS_sendfile | libc::SYS_copy_file_range | libc::SYS_splice => {
            descriptor(pid, if number == libc::SYS_sendfile { second } else { first })
        }
        libc::SYS_openat
        | libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_getdents64
        | libc::SYS_readlinkat
        | libc::SYS_unlinkat
        | libc::SYS_renameat
        | libc::SYS_renameat2
        | libc::SYS_mkdirat
        | libc::SYS_sync
        | libc::SYS_syncfs
        | libc::SYS_io_getevents
        | libc::SYS_io_uring_enter
        | libc::SYS_msync
        | libc::SYS_execve => Doing::File,
        libc::SYS_flock | libc::SYS_fcntl => Doing::FileLock,
        libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_connect
        | libc::SYS_accept
        | libc::SYS_accept4 => Doing::Socket,
        libc::SYS_ppoll => polled(pid, first, second),
        libc::SYS_pselect6 => selected(first),
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => Doing::Socket,
        // 128: within the process.
        libc::SYS_futex if second & 128 == 0 => Doing::SharedLock,
        libc::SYS_futex => Doing::Lock(first),
        libc::SYS_semop | libc::SYS_semtimedop => Doing::SharedLock,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => Doing::Sleep,
        libc::SYS_wait4 | libc::SYS_waitid => Doing::Child,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open
        | libc::SYS_stat
        | libc::SYS_lstat
        | libc::SYS_access
        | libc::SYS_getdents
        | libc::SYS_unlink
        | libc::SYS_rename
        | libc::SYS_mkdir
        | libc::SYS_readlink => Doing::File,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => polled(pid, first, second),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => selected(first),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => Doing::Socket,
        _ => Doing::Other,
    })
}

/// What is at a descriptor.
fn descriptor(pid: u32, number: u64) -> Doing {
    let Ok(target) = fs::read_link(format!("/proc/{pid}/fd/{}", number as u32)) else { return Doing::Other };
    let target = target.as_os_str().as_bytes();
    let device = target.starts_with(b"/dev/") && !target.starts_with(b"/dev/shm/");
    match target {
        _ if device => Doing::Device,
        [b'/', ..] => Doing::File,
        _ if target.starts_with(b"socket:") => Doing::Socket,
        _ if target.starts_with(b"pipe:") => Doing::Pipe,
        _ => Doing::Other,
    }
}

/// What poll(2) waits for: the first of its descriptors; nothing at all is a way to sleep.
fn polled(pid: u32, list: u64, count: u64) -> Doing {
    if count == 0 {
        return Doing::Sleep;
    }
    match Memory::of(pid).array::<4>(list) {
        Ok(bytes) => descriptor(pid, u64::from(u32::from_ne_bytes(bytes))),
        Err(_) => Doing::Other,
    }
}

/// What select(2) waits for.
fn selected(count: u64) -> Doing {
    if count == 0 { Doing::Sleep } else { Doing::Socket }
}

#[cfg(test)]
mod tests {
    use std::io::pipe;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn calls_say_what_they_wait_for() {
        let own = std::process::id();
        let is = |text: &str, wanted| assert_eq!(doing(own, text.as_bytes()), wanted, "{text}");
        is("running\n", Some(Doing::Runs));
        is("-1 0x7ffc 0x7f00\n", Some(Doing::Fault));
        let call = |number: i64, first: u64, second: u64| {
            format!("{number} {first:#x} {second:#x} 0x0 0x0 0x0 0x0 0x7ffc 0x7f00\n")
        };
        let (reader, _writer) = pipe().unwrap();
        let file = fs::File::open("/proc/self/stat").unwrap();
        is(&call(libc::SYS_read, reader.as_raw_fd() as u64, 0), Some(Doing::Pipe));
        is(&call(libc::SYS_pread64, file.as_raw_fd() as u64, 0), Some(Doing::File));
        let polled = [reader.as_raw_fd(), 1];
        is(&call(libc::SYS_ppoll, polled.as_ptr() as u64, 1), Some(Doing::Pipe));
        is(&call(libc::SYS_ppoll, 0, 0), Some(Doing::Sleep));
        is(&call(libc::SYS_futex, 0x1000, 0x189), Some(Doing::Lock(0x1000)));
        is(&call(libc::SYS_futex, 0x1000, 0x109), Some(Doing::SharedLock));
        is(&call(libc::SYS_wait4, 7, 0), Some(Doing::Child));
        is(&call(libc::SYS_getpid, 0, 0), Some(Doing::Other));
        is("nonsense", None);
        is("0 0x1", None);
    }
}
