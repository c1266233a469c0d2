//! Returns memory to the kernel that is not used any more: code pages that only ran at start, and free pages that the
//! allocator keeps after large requests.

use std::fs;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// Interval between checks of the heap size.
const LOOK: Duration = Duration::from_secs(5);
/// Changes of the heap size, in bytes, after which the heap is trimmed at once, or after [`WHILE`]. A heap that shrinks counts
/// too: a large buffer was just freed.
const AT_ONCE: u64 = 8 << 20;
const LATER: u64 = 1 << 20;
const WHILE: Duration = Duration::from_secs(60);

/// Releases unused memory whenever the heap has changed enough. Never returns.
pub async fn release_unused() {
    tokio::time::sleep(LOOK).await;
    loop {
        let _ = tokio::task::spawn_blocking(shrink).await;
        let (after, trimmed) = (allocated(), Instant::now());
        loop {
            tokio::time::sleep(LOOK).await;
            let changed = allocated().abs_diff(after);
            if changed >= AT_ONCE || (changed >= LATER && trimmed.elapsed() >= WHILE) {
                break;
            }
        }
    }
}

fn shrink() {
    trim();
    release_code();
}

/// Gives back the pages of code that ran only while the program started or was flooded: most of what a small program maps is
/// itself. They stay in the page cache while there is room, and come back by themselves when they run again.
fn release_code() {
    let (Ok(maps), Ok(program)) = (fs::read("/proc/self/maps"), fs::read_link("/proc/self/exe")) else {
        return;
    };
    for range in code(&maps, program.as_os_str().as_bytes()) {
        let start = std::ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: the range is code of this program, mapped from its file and never written to: the same bytes are read from the
        // file again. A failure leaves everything as it is.
        #[allow(unsafe_code)]
        let _ = unsafe { libc::madvise(start, range.len(), libc::MADV_DONTNEED) };
    }
}

/// Where the code of a program is mapped, by a table of mappings. Its data is left alone: addresses were written into it.
fn code(maps: &[u8], program: &[u8]) -> Vec<Range<usize>> {
    let lines = maps.split(|byte| *byte == b'\n').filter(|line| line.ends_with(program));
    let text = lines.filter_map(|line| std::str::from_utf8(line).ok());
    text.filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        (fields.next()? == "r-xp").then_some(range)
    })
    .collect()
}

/// Gives back what the allocator keeps for later.
#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: it takes the allocator's own locks and touches only what nobody holds.
    #[allow(unsafe_code)]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Gives back what the allocator keeps for later: this one keeps little.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

/// Private memory of this process in bytes; 0 if it cannot be read.
fn allocated() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = text.split_ascii_whitespace().skip(1).map_while(|pages| pages.parse::<u64>().ok());
    let (resident, of_files) = (pages.next().unwrap_or_default(), pages.next().unwrap_or_default());
    // SAFETY: it only reads a number.
    #[allow(unsafe_code)]
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    resident.saturating_sub(of_files) * u64::try_from(size).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn code_is_what_may_run_and_not_be_written() {
        let maps = b"1000-3000 r--p 0 fe:00 7 /bin/program\n\
            3000-5000 r-xp 2000 fe:00 7                  /bin/program\n\
            5000-6000 rw-p 4000 fe:00 7 /bin/program\n\
            7000-9000 r-xp 0 fe:00 8 /lib/libc.so.6\n";
        let mut found = code(maps, b"/bin/program");
        assert_eq!((found.pop(), found.len()), (Some(0x3000..0x5000), 0));
        assert!(code(maps, b"/bin/another").is_empty());
        assert!(code(b"x\n-5 r-xp /bin/program", b"/bin/program").is_empty());
    }

    #[test]
    fn a_program_runs_on_without_its_code() {
        let maps = fs::read("/proc/self/maps").unwrap();
        let program = fs::read_link("/proc/self/exe").unwrap();
        assert!(!code(&maps, program.as_os_str().as_bytes()).is_empty());
        release_code();
        trim();
        assert!(allocated() > 1 << 16);
    }
}
