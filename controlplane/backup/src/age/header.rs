//! The header: a stanza for each recipient with the file key, and a MAC.

use super::{AgeError, INTRO, Identity, Recipient, derive, random};
use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hmac;
use std::io::Read;
use x25519_dalek::x25519;

/// log2 of the work of a passphrase, as `age` has it.
const WORK: u8 = 18;
/// More would take more than a gigabyte.
pub(super) const MAX_WORK: u8 = 20;
const X25519_INFO: &[u8] = b"age-encryption.org/v1/X25519";
const SCRYPT_INFO: &[u8] = b"age-encryption.org/v1/scrypt";
const COLUMNS: usize = 64;
const MAX_LINE: usize = 4096;
const MAX_LINES: usize = 1024;
const TAG: usize = 16;

/// The key that the keys of header and payload come from.
pub(super) type FileKey = [u8; 16];

struct Stanza {
    arguments: Vec<String>,
    body: Vec<u8>,
}

/// The file key under another key.
fn wrap(key: &[u8; 32], file_key: &FileKey) -> Vec<u8> {
    let mut body = file_key.to_vec();
    let sealed = aead(key).seal_in_place_append_tag(zero_nonce(), Aad::empty(), &mut body);
    sealed.expect("16 bytes can be encrypted");
    body
}

fn unwrap(key: &[u8; 32], body: &[u8]) -> Option<FileKey> {
    let mut body = body.to_vec();
    let plain = aead(key).open_in_place(zero_nonce(), Aad::empty(), &mut body).ok()?;
    plain.try_into().ok()
}

pub(super) fn aead(key: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).expect("32 bytes are a key of ChaCha20"))
}

/// Wrapping keys are used once.
fn zero_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

fn scrypt_key(passphrase: &[u8], salt: &[u8], work: u8) -> Result<[u8; 32], AgeError> {
    let parameters = scrypt::Params::new(work, 8, 1).map_err(|_| AgeError::Work(work))?;
    let mut key = [0; 32];
    let salt = [SCRYPT_INFO, salt].concat();
    scrypt::scrypt(passphrase, &salt, &parameters, &mut key).map_err(|_| AgeError::Work(work))?;
    Ok(key)
}

impl Stanza {
    fn new(recipient: &Recipient, file_key: &FileKey) -> Result<Self, AgeError> {
        match recipient {
            Recipient::X25519(public) => {
                let secret = random::<32>()?;
                let share = Identity::public(secret);
                let shared = x25519(secret, *public);
                // A public key of small order: everybody knows the result.
                if shared == [0; 32] {
                    return Err(AgeError::Header("a recipient is no key"));
                }
                let key = derive(&shared, &[share, *public].concat(), X25519_INFO);
                let arguments = vec!["X25519".to_owned(), STANDARD_NO_PAD.encode(share)];
                Ok(Self { arguments, body: wrap(&key, file_key) })
            }
            Recipient::Passphrase(passphrase) => {
                let salt = random::<16>()?;
                let key = scrypt_key(passphrase.as_bytes(), &salt, WORK)?;
                let arguments = vec!["scrypt".to_owned(), STANDARD_NO_PAD.encode(salt), WORK.to_string()];
                Ok(Self { arguments, body: wrap(&key, file_key) })
            }
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"-> ");
        out.extend_from_slice(self.arguments.join(" ").as_bytes());
        out.push(b'\n');
        let body = STANDARD_NO_PAD.encode(&self.body);
        let mut rest = body.as_str();
        while rest.len() >= COLUMNS {
            let (line, more) = rest.split_at(COLUMNS);
            out.extend_from_slice(line.as_bytes());
            out.push(b'\n');
            rest = more;
        }
        out.extend_from_slice(rest.as_bytes());
        out.push(b'\n');
    }

    /// The file key, if the identity is that of the stanza.
    fn open(&self, identity: &Identity) -> Result<Option<FileKey>, AgeError> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let bad = |what| move |_| AgeError::Header(what);
        match (arguments.as_slice(), identity) {
            (["X25519", share], Identity::X25519(secret)) => {
                let share: [u8; 32] = STANDARD_NO_PAD
                    .decode(share)
                    .map_err(bad("a share is not base64"))?
                    .try_into()
                    .map_err(|_| AgeError::Header("a share has not 32 bytes"))?;
                let shared = x25519(*secret, share);
                if shared == [0; 32] || self.body.len() != size_of::<FileKey>() + TAG {
                    return Err(AgeError::Header("a stanza for X25519 is none"));
                }
                let public = Identity::public(*secret);
                Ok(unwrap(&derive(&shared, &[share, public].concat(), X25519_INFO), &self.body))
            }
            (["scrypt", salt, work], Identity::Passphrase(passphrase)) => {
                let salt = STANDARD_NO_PAD.decode(salt).map_err(bad("a salt is not base64"))?;
                let work: u8 = work.parse().map_err(|_| AgeError::Header("a work factor is no number"))?;
                if work > MAX_WORK {
                    return Err(AgeError::Work(work));
                }
                if salt.len() != 16 || work == 0 || self.body.len() != size_of::<FileKey>() + TAG {
                    return Err(AgeError::Header("a stanza for a passphrase is none"));
                }
                Ok(unwrap(&scrypt_key(passphrase.as_bytes(), &salt, work)?, &self.body))
            }
            _ => Ok(None),
        }
    }
}

fn mac_key(file_key: &FileKey) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &derive(file_key, b"", b"header"))
}

/// A new file key, and the header that has it for each recipient.
pub(super) fn write(recipients: &[Recipient]) -> Result<(FileKey, Vec<u8>), AgeError> {
    let secret = recipients.iter().any(|one| matches!(one, Recipient::Passphrase(_)));
    match recipients.len() {
        0 => return Err(AgeError::NoRecipient),
        2.. if secret => return Err(AgeError::Combined),
        _ => {}
    }
    let file_key = random()?;
    let mut out = INTRO.to_vec();
    for recipient in recipients {
        Stanza::new(recipient, &file_key)?.put(&mut out);
    }
    out.extend_from_slice(b"---");
    let mac = hmac::sign(&mac_key(&file_key), &out);
    out.push(b' ');
    out.extend_from_slice(STANDARD_NO_PAD.encode(mac).as_bytes());
    out.push(b'\n');
    Ok((file_key, out))
}

/// Reads lines, and keeps them for the MAC.
struct Lines<'a, R> {
    source: &'a mut R,
    read: Vec<u8>,
    count: usize,
}

impl<R: Read> Lines<'_, R> {
    fn next(&mut self) -> Result<String, AgeError> {
        self.count += 1;
        if self.count > MAX_LINES {
            return Err(AgeError::Header("it is too long"));
        }
        let begun = self.read.len();
        loop {
            let mut byte = [0];
            match self.source.read(&mut byte) {
                Ok(0) => return Err(AgeError::Truncated),
                Ok(_) if byte == *b"\n" => break,
                Ok(_) => self.read.push(byte[0]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(AgeError::Read(error)),
            }
            if self.read.len() - begun > MAX_LINE {
                return Err(AgeError::Header("a line is too long"));
            }
        }
        let line = String::from_utf8(self.read[begun..].to_vec());
        self.read.push(b'\n');
        line.map_err(|_| AgeError::Header("it is not text"))
    }
}

/// Reads a header, and finds the file key with one of the identities. `source` should be buffered.
pub(super) fn read(source: &mut impl Read, identities: &[Identity]) -> Result<FileKey, AgeError> {
    let mut lines = Lines { source, read: Vec::new(), count: 0 };
    if lines.next()?.as_bytes() != INTRO.trim_ascii_end() {
        return Err(AgeError::Header("it does not begin with age-encryption.org/v1"));
    }
    let mut stanzas: Vec<Stanza> = Vec::new();
    let (mac, signed) = loop {
        let begun = lines.read.len();
        let line = lines.next()?;
        if let Some(mac) = line.strip_prefix("--- ") {
            break (mac.to_owned(), lines.read[..begun + 3].to_vec());
        }
        let arguments =
            line.strip_prefix("-> ").ok_or(AgeError::Header("a stanza does not begin with ->"))?;
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let mut body = String::new();
        loop {
            let line = lines.next()?;
            body.push_str(&line);
            match line.len() {
                COLUMNS => {}
                0..COLUMNS => break,
                _ => return Err(AgeError::Header("a line of a stanza is too long")),
            }
        }
        let body = STANDARD_NO_PAD.decode(body).map_err(|_| AgeError::Header("a stanza is not base64"))?;
        stanzas.push(Stanza { arguments, body });
    };
    let secret = stanzas.iter().any(|one| one.arguments.first().is_some_and(|kind| kind == "scrypt"));
    if secret && stanzas.len() > 1 {
        return Err(AgeError::Combined);
    }
    for stanza in &stanzas {
        for identity in identities {
            if let Some(file_key) = stanza.open(identity)? {
                let mac = STANDARD_NO_PAD.decode(&mac).map_err(|_| AgeError::HeaderChanged)?;
                hmac::verify(&mac_key(&file_key), &signed, &mac).map_err(|_| AgeError::HeaderChanged)?;
                return Ok(file_key);
            }
        }
    }
    Err(AgeError::WrongKey)
}
