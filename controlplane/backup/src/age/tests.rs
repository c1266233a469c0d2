#![allow(clippy::unwrap_used)]
use super::*;
use std::io::Read;

// Written by Debian's age 1.1.1.
const IDENTITY: &str = include_str!("fixtures/identity.txt");
const FOR_RECIPIENT: &[u8] = include_bytes!("fixtures/recipient.age");
const WITH_PASSPHRASE: &[u8] = include_bytes!("fixtures/passphrase.age");

fn decrypted(bytes: &[u8], identities: &[Identity]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut file = Decryptor::open(bytes, identities).map_err(|error| error.to_string())?;
    file.read_to_end(&mut out).map_err(|error| error.to_string())?;
    Ok(out)
}

fn encrypted(plain: &[u8], recipients: &[Recipient]) -> Vec<u8> {
    let (mut encryptor, mut out) = Encryptor::new(recipients).unwrap();
    for piece in plain.chunks(10_007) {
        encryptor.push(piece, &mut out);
    }
    encryptor.finish(&mut out);
    out
}

fn passphrase(text: &str) -> Identity {
    Identity::Passphrase(Passphrase::of_file(text).unwrap())
}

fn plain() -> Vec<u8> {
    (0..10_000).flat_map(|n| format!("{n:06}\n").into_bytes()).collect()
}

#[test]
fn files_of_the_age_program_are_read() {
    let identities = identities(IDENTITY).unwrap();
    assert_eq!(decrypted(FOR_RECIPIENT, &identities).unwrap(), plain());
    assert_eq!(decrypted(WITH_PASSPHRASE, &[passphrase("correct horse\n")]).unwrap(), b"made by age\n");
    let said = IDENTITY.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap();
    assert_eq!(identities[0].recipient(), said.parse().unwrap());
}

#[test]
fn what_was_encrypted_is_decrypted_and_by_nobody_else() {
    let mine = &identities(IDENTITY).unwrap()[0];
    let other = Identity::X25519([7; 32]);
    let all = plain();
    for length in [0, 1, 65_535, 65_536, 65_537, all.len()] {
        let file = encrypted(&all[..length], &[other.recipient(), mine.recipient()]);
        for identity in [mine, &other] {
            assert_eq!(decrypted(&file, std::slice::from_ref(identity)).unwrap(), &all[..length], "{length}");
        }
        let stranger = decrypted(&file, &[Identity::X25519([8; 32])]).unwrap_err();
        assert!(stranger.starts_with("wrong key"), "{stranger}");
    }
    let secret = passphrase("one");
    let file = encrypted(b"x", &[secret.recipient()]);
    assert_eq!(decrypted(&file, &[secret]).unwrap(), b"x");
    for wrong in [passphrase("two"), mine.clone()] {
        assert!(decrypted(&file, &[wrong]).unwrap_err().starts_with("wrong key"));
    }
    let both = [passphrase("one").recipient(), mine.recipient()];
    assert!(matches!(Encryptor::new(&both), Err(AgeError::Combined)));
    assert!(matches!(Encryptor::new(&[]), Err(AgeError::NoRecipient)));
}

#[test]
fn truncated_and_changed_files_are_refused() {
    let identities = identities(IDENTITY).unwrap();
    let payload = FOR_RECIPIENT.windows(4).position(|four| four == b"--- ").unwrap();
    for end in [0, 10, payload, payload + 60, FOR_RECIPIENT.len() - 1, payload + 48 + 16 + 65_552] {
        let error = decrypted(&FOR_RECIPIENT[..end], &identities).unwrap_err();
        assert!(error.contains("truncated"), "{end}: {error}");
    }
    for (at, want) in [(payload + 6, "changed"), (payload + 80, "changed"), (payload + 70_000, "changed")] {
        let mut changed = FOR_RECIPIENT.to_vec();
        changed[at] ^= 1;
        let error = decrypted(&changed, &identities).unwrap_err();
        assert!(error.contains(want), "{at}: {error}");
    }
    let more = [FOR_RECIPIENT, b"x"].concat();
    assert!(decrypted(&more, &identities).is_err());
}

#[test]
fn headers_that_would_cost_too_much_are_refused() {
    let text = |work: &str| {
        format!(
            "age-encryption.org/v1\n-> scrypt AAAAAAAAAAAAAAAAAAAAAA {work}\n{}\n--- AA\n",
            "A".repeat(43)
        )
    };
    let open = |text: &str| Decryptor::open(text.as_bytes(), &[passphrase("x")]).err().unwrap();
    assert!(matches!(open(&text("21")), AgeError::Work(21)));
    assert!(matches!(open(&text("0")), AgeError::Header(_)));
    assert!(matches!(open(&text("many")), AgeError::Header(_)));
    assert!(matches!(open(&"x".repeat(10_000)), AgeError::Header("a line is too long")));
    let endless = format!("age-encryption.org/v1\n-> x\n{}", format!("{}\n", "A".repeat(64)).repeat(2000));
    assert!(matches!(open(&endless), AgeError::Header("it is too long")));
}

#[test]
fn keys_that_are_none_are_refused() {
    for text in ["", "age1", "age1qqqq", &IDENTITY[IDENTITY.len() - 75..], "AGE1584R9MCT8"] {
        assert!(text.parse::<Recipient>().is_err(), "{text}");
    }
    assert!(matches!(identities("# nothing\n\n"), Err(AgeError::NoIdentity)));
    assert!(matches!(identities("# one\nage1xyz"), Err(AgeError::Identity(2))));
    assert_eq!(Passphrase::of_file("\nsecond"), None);
}
