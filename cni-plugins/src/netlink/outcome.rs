//! Results of requests: acknowledgements, errors, and the kernel's extended error messages.

use netlink_packet_core::{DoneBuffer, ErrorBuffer, NLM_F_ACK_TLVS, NLM_F_CAPPED};
use nix::errno::Errno;

use super::{
    Error, Result,
    message::{Answer, Attributes, u32_at},
};

/// The code of an error message, and the header of a message.
const CODE: usize = 4;
const HEADER: usize = 16;
/// `NLMSGERR_ATTR_MSG`.
const TEXT: u16 = 1;

/// The result in an `NLMSG_ERROR`, which acknowledges requests, too.
pub(super) fn outcome(answer: &Answer<'_>, action: &str) -> Result<()> {
    let Ok(error) = ErrorBuffer::new_checked(answer.payload) else { return Err(Error::Malformed) };
    let Some(code) = error.code() else { return Ok(()) };
    // Behind the request: all of it, or only its header.
    let echoed = match answer.flags & NLM_F_CAPPED {
        0 => (u32_at(answer.payload, CODE) as usize).next_multiple_of(4),
        _ => HEADER,
    };
    Err(refused(answer, action, code.get(), CODE + echoed))
}

/// The result in the `NLMSG_DONE` that ends a list.
pub(super) fn done(answer: &Answer<'_>, action: &str) -> Result<()> {
    match DoneBuffer::new_checked(answer.payload) {
        Ok(done) if done.code() < 0 => Err(refused(answer, action, done.code(), CODE)),
        _ => Ok(()),
    }
}

/// An error from a negative code; the extended message is in attributes that begin at an offset, if any.
fn refused(answer: &Answer<'_>, action: &str, code: i32, attributes: usize) -> Error {
    let text = Some(answer)
        .filter(|answer| answer.flags & NLM_F_ACK_TLVS != 0)
        .and_then(|answer| Attributes::new(answer.payload.get(attributes..)?).find_kind(TEXT));
    let message =
        text.map(|text| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned()).unwrap_or_default();
    Error::Refused { action: action.to_owned(), errno: Errno::from_raw(code.saturating_neg()), message }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR};

    use super::*;
    use crate::netlink::Message;

    fn answer(kind: u16, flags: u16, payload: &[u8]) -> Answer<'_> {
        Answer { kind, flags, sequence: 1, port: 0, payload }
    }

    /// An error of a request, as it is echoed, with the kernel's words.
    fn payload(code: i32, request: &[u8], echoed: usize) -> Vec<u8> {
        let text = Message::new(0, 0, "").text(TEXT, "Device does not exist");
        [&code.to_ne_bytes()[..], &request[..echoed], &text.bytes()[HEADER..]].concat()
    }

    #[test]
    fn refusals_have_the_kernel_s_words() {
        let mut request = Message::new(16, 0, "").raw(&[0; 16]).text(3, "x0");
        let request = request.seal(1, 0);
        for (flags, echoed) in [(NLM_F_ACK_TLVS, request.len()), (NLM_F_ACK_TLVS | NLM_F_CAPPED, HEADER)] {
            let payload = payload(-libc::ENODEV, request, echoed);
            let error = outcome(&answer(NLMSG_ERROR, flags, &payload), "changing x0").unwrap_err();
            assert_eq!(error.errno(), Some(Errno::ENODEV));
            assert!(error.to_string().starts_with("changing x0: ENODEV: "), "{error}");
            assert!(error.to_string().ends_with(" (Device does not exist)"), "{error}");
            // Not asked for, it is not there.
            let error = outcome(&answer(NLMSG_ERROR, 0, &payload), "x").unwrap_err();
            assert!(matches!(error, Error::Refused { message, .. } if message.is_empty()));
        }
        let acknowledged = payload(0, request, HEADER);
        assert!(outcome(&answer(NLMSG_ERROR, NLM_F_CAPPED, &acknowledged), "x").is_ok());
        assert!(matches!(outcome(&answer(NLMSG_ERROR, 0, &[1]), "x"), Err(Error::Malformed)));
    }

    #[test]
    fn a_list_may_end_with_an_error() {
        assert!(done(&answer(NLMSG_DONE, 0, &[]), "x").is_ok());
        assert!(done(&answer(NLMSG_DONE, 0, &[0; 4]), "x").is_ok());
        let error = done(&answer(NLMSG_DONE, 0, &(-libc::ENOENT).to_ne_bytes()), "x").unwrap_err();
        assert_eq!(error.errno(), Some(Errno::ENOENT));
    }
}
