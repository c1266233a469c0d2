//! The proof of a token: an HMAC over a challenge of the server and over what the joining server says about itself. The secret
//! stays where it is.
//!
//! Challenges are not remembered. They are authenticated with a key that is derived from the sealing key, so that any server of
//! the cluster takes the answer, and they end after a minute. A proof that is repeated within that time gets what the first one
//! got, which only the owner of the token can open.

use super::{ServerToken, TokenRecord};
use crate::cluster_keys::{SealedError, SealingKey, random};
use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use ring::hmac;

/// How long a challenge can be answered, in seconds.
const LIFE: i64 = 60;
/// Clocks of servers may differ, in seconds.
const LAG: i64 = 30;
const RANDOM: usize = 16;
const TIME: usize = 8;

/// What a joining server proves its token for.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// The challenge that it got.
    pub challenge: &'a str,
    /// The hash of the CA that it expects.
    pub ca_hash: &'a str,
    /// Its version.
    pub version: &'a str,
    /// The newest format of the store that it reads.
    pub format: u32,
}

impl Claim<'_> {
    /// All parts, each with its length before it.
    fn bytes(&self) -> Vec<u8> {
        let format = self.format.to_string();
        let mut bytes = b"coracle join 1".to_vec();
        for part in [self.challenge, self.ca_hash, self.version, &format] {
            bytes.extend((part.len() as u64).to_be_bytes());
            bytes.extend(part.as_bytes());
        }
        bytes
    }
}

impl ServerToken {
    /// The proof that the caller has this token.
    pub fn prove(&self, claim: &Claim<'_>) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.derived("proof"));
        STANDARD.encode(hmac::sign(&key, &claim.bytes()))
    }
}

impl TokenRecord {
    /// Whether a proof is one of the token. The time that it takes does not say where it is wrong.
    pub fn verify(&self, claim: &Claim<'_>, proof: &str) -> bool {
        let (Ok(verifier), Ok(proof)) = (STANDARD.decode(&self.verifier), STANDARD.decode(proof)) else {
            return false;
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, &verifier);
        verifier.len() == 32 && hmac::verify(&key, &claim.bytes(), &proof).is_ok()
    }
}

/// Makes and checks challenges.
pub struct Challenges(hmac::Key);

impl Challenges {
    /// Those of a cluster.
    pub fn new(sealing: &SealingKey) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, &sealing.derived("challenge")))
    }

    /// A new challenge.
    pub fn create(&self, now: Timestamp) -> Result<String, SealedError> {
        let mut bytes = now.as_second().to_be_bytes().to_vec();
        bytes.extend(random::<RANDOM>()?);
        let tag = hmac::sign(&self.0, &bytes);
        bytes.extend(tag.as_ref());
        Ok(STANDARD.encode(bytes))
    }

    /// Whether a server of the cluster made the challenge, and not long ago.
    pub fn accepts(&self, challenge: &str, now: Timestamp) -> bool {
        let Ok(bytes) = STANDARD.decode(challenge) else { return false };
        let Some((message, tag)) = bytes.split_at_checked(TIME + RANDOM) else { return false };
        let Some(time) = message.first_chunk::<TIME>() else { return false };
        let age = now.as_second().saturating_sub(i64::from_be_bytes(*time));
        hmac::verify(&self.0, message, tag).is_ok() && (-LAG..=LIFE + LAG).contains(&age)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn now() -> Timestamp {
        "2030-01-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_proof_is_for_one_claim_and_one_token() {
        let hash = format!("sha256:{}", "ab".repeat(32));
        let (token, other) = (ServerToken::generate(&hash).unwrap(), ServerToken::generate(&hash).unwrap());
        let sealing = SealingKey::generate().unwrap();
        let record = TokenRecord::new(&token, &sealing, "", (now(), None)).unwrap();
        let claim = Claim { challenge: "abc", ca_hash: &hash, version: "0.1.0", format: 1 };
        let proof = token.prove(&claim);
        assert!(record.verify(&claim, &proof));
        assert!(!record.verify(&claim, &other.prove(&claim)));
        for changed in [
            Claim { challenge: "abd", ..claim },
            Claim { ca_hash: "sha256:00", ..claim },
            Claim { version: "0.2.0", ..claim },
            Claim { format: 2, ..claim },
            // The same characters, divided in another way.
            Claim { challenge: "abcs", ca_hash: &hash[1..], ..claim },
        ] {
            assert!(!record.verify(&changed, &proof), "{changed:?}");
        }
        for bad in ["", "=", &proof[..20], &format!("{proof}AA")] {
            assert!(!record.verify(&claim, bad), "{bad}");
        }
    }

    #[test]
    fn challenges_are_those_of_the_cluster_and_end() {
        let sealing = SealingKey::generate().unwrap();
        let (here, there) = (Challenges::new(&sealing), Challenges::new(&sealing));
        let challenge = here.create(now()).unwrap();
        let after = |seconds: i64| Timestamp::from_second(now().as_second() + seconds).unwrap();
        assert!(there.accepts(&challenge, after(1)) && there.accepts(&challenge, after(-5)));
        assert!(!there.accepts(&challenge, after(91)) && !there.accepts(&challenge, after(-31)));
        assert!(!Challenges::new(&SealingKey::generate().unwrap()).accepts(&challenge, now()));
        let mut bytes = STANDARD.decode(&challenge).unwrap();
        bytes[7] ^= 1;
        assert!(!here.accepts(&STANDARD.encode(&bytes), now()), "a time that was changed");
        for bad in ["", "x", &challenge[..8], &challenge[..32]] {
            assert!(!here.accepts(bad, now()), "{bad}");
        }
    }
}
