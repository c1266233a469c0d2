//! Listings on standard output.

use std::io::{self, Write};

/// Prints a listing. A closed pipe (`| head`) is no error.
pub fn print(listing: &str) -> io::Result<()> {
    print_to(&mut io::stdout().lock(), listing)
}

fn print_to(out: &mut impl Write, listing: &str) -> io::Result<()> {
    match out.write_all(listing.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_reader_that_is_gone_is_no_failure() {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        print_to(&mut writer, "one\n").unwrap();
        assert!(print_to(&mut [0; 2].as_mut_slice(), "more than there is room for").is_err());
    }
}
