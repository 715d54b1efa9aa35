//! Memory of processes, from Linux's `/proc`.

use std::fs;

use crate::error::Error;

/// The resident memory of a process, in bytes.
pub(crate) fn of_process(pid: u32) -> Result<u64, Error> {
    let path = format!("/proc/{pid}/status");
    let resident = fs::read_to_string(&path).ok().and_then(|status| resident(&status));
    resident.ok_or(Error::Proc(path))
}

/// See `proc_pid_status(5)`: kB are 1,024 bytes.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        assert_eq!(resident("VmHWM:\t  9 kB\nVmRSS:\t   12 kB\nVmData:\t 7 kB"), Some(12 * 1024));
        assert_eq!(resident("VmRSS:\t12 MB"), None);
        assert!(of_process(std::process::id()).unwrap() > 1024 * 1024);
    }
}
