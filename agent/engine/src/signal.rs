//! Signals by name.

use coracle_proto::cri;

/// Number of the signal that asks a container to stop.
pub(crate) fn stop_signal(config: &cri::ContainerConfig, image: &str) -> i32 {
    let asked = config.stop_signal();
    let name = if asked == cri::Signal::RuntimeDefault { image } else { asked.as_str_name() };
    signal_number(name).unwrap_or(libc::SIGTERM)
}

/// A signal by its number or name, with or without `SIG`, `RTMIN+3` and `SIGRTMINPLUS3` alike.
fn signal_number(name: &str) -> Option<i32> {
    if let Ok(number) = name.parse() {
        return (1..=64).contains(&number).then_some(number);
    }
    let upper = name.to_ascii_uppercase().replace("PLUS", "+").replace("MINUS", "-");
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    for (base, number) in [("RTMIN", 34), ("RTMAX", 64)] {
        if let Some(offset) = short.strip_prefix(base) {
            return if offset.is_empty() { Some(number) } else { Some(number + offset.parse::<i32>().ok()?) };
        }
    }
    match short {
        "CLD" => Some(libc::SIGCHLD),
        "IOT" => Some(libc::SIGABRT),
        "POLL" => Some(libc::SIGIO),
        _ => format!("SIG{short}").parse::<nix::sys::signal::Signal>().ok().map(|s| s as i32),
    }
}

/// A signal's name in CRI.
pub(crate) fn signal_named(number: i32) -> cri::Signal {
    let name = match number {
        34 => "SIGRTMIN".to_owned(),
        35..=49 => format!("SIGRTMINPLUS{}", number - 34),
        50..=63 => format!("SIGRTMAXMINUS{}", 64 - number),
        64 => "SIGRTMAX".to_owned(),
        _ => nix::sys::signal::Signal::try_from(number).map_or(String::new(), |signal| signal.to_string()),
    };
    cri::Signal::from_str_name(&name).unwrap_or(cri::Signal::RuntimeDefault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_by_name_and_number() {
        for (name, number) in [
            ("SIGTERM", Some(15)),
            ("quit", Some(3)),
            ("9", Some(9)),
            ("SIGRTMIN+3", Some(37)),
            ("SIGRTMINPLUS3", Some(37)),
            ("RTMAX-1", Some(63)),
            ("SIGRTMAXMINUS1", Some(63)),
            ("SIGCLD", Some(17)),
            ("SIGNONE", None),
            ("99", None),
        ] {
            assert_eq!(signal_number(name), number, "{name}");
        }
    }

    #[test]
    fn every_signal_has_its_name_in_cri() {
        for number in (1..=64).filter(|number| ![32, 33].contains(number)) {
            let name = signal_named(number);
            assert_eq!(signal_number(name.as_str_name()), Some(number), "{name:?}");
        }
    }
}
