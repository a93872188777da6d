//! The system calls that neither std nor a crate of the table wraps.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// An eventfd: non-blocking, closed on exec, counter at `count`.
pub(crate) fn eventfd(count: u32) -> io::Result<OwnedFd> {
    // SAFETY: eventfd takes no pointers.
    let fd = unsafe { libc::eventfd(count, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(own(fd))
}

/// Waits until a descriptor can be read, for at most `longest`; may return early.
pub(crate) fn wait_readable(fd: RawFd, longest: Option<Duration>) {
    poll(&mut [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }], longest);
}

/// Waits until one of these is ready, for at most `longest`; may return early, with nothing ready.
pub(crate) fn poll(polled: &mut [libc::pollfd], longest: Option<Duration>) {
    let timeout_ms = longest.map_or(-1, |longest| i32::try_from(longest.as_millis().max(1)).unwrap_or(i32::MAX));
    // SAFETY: the pointer is to as many pollfds as the length says, valid for the call.
    let ready_count = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout_ms) };
    if ready_count < 0 {
        polled.iter_mut().for_each(|entry| entry.revents = 0);
    }
}

/// Takes ownership of a descriptor that the kernel has just made for us.
pub(crate) fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: callers pass a descriptor that a system call or a completion has just returned and that nobody else holds.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A resource limit: `(soft, hard)`, in the resource's unit.
pub(crate) fn limit(resource: libc::__rlimit_resource_t) -> io::Result<(u64, u64)> {
    let mut limit = MaybeUninit::<libc::rlimit>::uninit();
    // SAFETY: the pointer is valid for the call, which fills the struct when it returns 0.
    if unsafe { libc::getrlimit(resource, limit.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: getrlimit returned 0.
    let limit = unsafe { limit.assume_init() };
    Ok((limit.rlim_cur, limit.rlim_max))
}

/// Sets the soft and hard limit of a resource.
pub(crate) fn set_limit(resource: libc::__rlimit_resource_t, soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: the pointer is valid for the call, which only reads it.
    if unsafe { libc::setrlimit(resource, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The CPUs that the calling thread may run on, ascending.
pub(crate) fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: an all-zero cpu_set_t is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for the call and the size is that of the struct.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: CPU_ISSET reads within the set for every number below CPU_SETSIZE.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// Keeps the calling thread on one CPU.
pub(crate) fn pin_this_thread(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: an all-zero cpu_set_t is a valid, empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: cpu is below CPU_SETSIZE, so the write stays within the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the pointer is valid for the call, which only reads it.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
