//! Memory that was needed once goes back to the machine: the allocator keeps what large requests let go of, and a server that
//! was flooded once would look flooded for ever.

use std::time::{Duration, Instant};

/// How often the server looks at its own size.
const LOOK: Duration = Duration::from_secs(5);
/// A change of size that is worth a walk over the heap at once, and one that is worth it after a while, in bytes. One that
/// shrinks by itself has just let go of much more.
const AT_ONCE: u64 = 8 << 20;
const LATER: u64 = 1 << 20;
const WHILE: Duration = Duration::from_secs(60);

/// Looks after the server's size for ever.
pub async fn give_back() {
    let (mut after, mut trimmed) = (resident(), Instant::now());
    loop {
        tokio::time::sleep(LOOK).await;
        let changed = resident().abs_diff(after);
        if changed >= AT_ONCE || (changed >= LATER && trimmed.elapsed() >= WHILE) {
            let _ = tokio::task::spawn_blocking(trim).await;
            (after, trimmed) = (resident(), Instant::now());
        }
    }
}

/// Resident bytes of this process; 0 where nobody tells.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: it takes the allocator's own locks and touches only what nobody holds.
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_its_size() {
        assert!(resident() > 1 << 20);
        trim();
    }
}
