//! Memory of processes, from Linux's `/proc`.

use std::fs;

use crate::error::Error;

/// The resident memory of a process, in bytes.
pub(crate) fn of_process(pid: u32) -> Result<u64, Error> {
    read(pid, "VmRSS:")
}

/// The most memory of a process that was resident so far, in bytes.
pub(crate) fn peak_of_process(pid: u32) -> Result<u64, Error> {
    read(pid, "VmHWM:")
}

fn read(pid: u32, name: &str) -> Result<u64, Error> {
    let path = format!("/proc/{pid}/status");
    let bytes = fs::read_to_string(&path).ok().and_then(|status| field(&status, name));
    bytes.ok_or(Error::Proc(path))
}

/// See `proc_pid_status(5)`: kB are 1,024 bytes.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        let status = "VmHWM:\t  19 kB\nVmRSS:\t   12 kB\nVmData:\t 7 kB";
        assert_eq!(["VmRSS:", "VmHWM:"].map(|name| field(status, name)), [Some(12 * 1024), Some(19 * 1024)]);
        assert_eq!(field("VmRSS:\t12 MB", "VmRSS:"), None);
        assert!(of_process(std::process::id()).unwrap() > 1024 * 1024);
    }
}
