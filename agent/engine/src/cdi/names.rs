//! Qualified names of devices: `vendor/class=name`.

use super::CdiError;

/// Longest name that is looked up.
const MAX_NAME: usize = 512;

/// Checks a qualified name.
pub fn check(name: &str) -> Result<(), CdiError> {
    let wrong = |reason| Err(CdiError::Name { name: name.chars().take(MAX_NAME).collect(), reason });
    if name.len() > MAX_NAME {
        return wrong("it is too long");
    }
    let Some((kind, device)) = name.split_once('=') else { return wrong("it is not vendor/class=name") };
    if !is_kind(kind) {
        return wrong("the part before '=' is not vendor/class");
    }
    if !is_device(device) {
        return wrong("the part after '=' is not a name of a device");
    }
    Ok(())
}

/// Whether a text is `vendor/class`.
pub fn is_kind(text: &str) -> bool {
    text.split_once('/').is_some_and(|(vendor, class)| is_part(vendor) && is_part(class))
}

fn is_part(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && is_name(text, "_-.")
}

/// Whether a text is the name of a device.
pub fn is_device(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && is_name(text, "_-.:")
}

fn is_name(text: &str, between: &str) -> bool {
    text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || between.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_vendor_a_class_and_a_device() {
        for good in ["vendor.example/gpu=0", "v/c=a", "v-1/c_2.x=GPU-1:2.3"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for (bad, part) in [
            ("gpu0", "not vendor/class=name"),
            ("vendor=0", "before '='"),
            ("/gpu=0", "before '='"),
            ("1v/gpu=0", "before '='"),
            ("v/gpu.=0", "before '='"),
            ("v/a/b=0", "before '='"),
            ("v/gpu=", "after '='"),
            ("v/gpu=-", "after '='"),
            ("v/gpu=a b", "after '='"),
            ("v/gpu=../../x", "after '='"),
        ] {
            let error = check(bad).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(part) && error.contains(bad), "{bad}: {error}");
        }
        assert!(check(&format!("v/c={}", "a".repeat(MAX_NAME))).is_err());
    }
}
