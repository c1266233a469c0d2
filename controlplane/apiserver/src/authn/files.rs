//! Static credentials in CSV files: bearer tokens and, if enabled, passwords. Columns: secret, user, uid, and groups in
//! quotes.

use super::authenticated::Authenticated;
use coracle_client::user::User;
use coracle_pki::bootstrap_token::same;
use std::path::{Path, PathBuf};

/// Why a file of credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// It cannot be read.
    #[error("{0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// A line has too few columns.
    #[error("{path} line {line}: want at least 3 columns (secret, user name, user uid), found {found}")]
    Columns {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// How many there are.
        found: usize,
    },
    /// A secret is empty or there twice.
    #[error("{path} line {line}: the secret is empty or used twice")]
    Secret {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
}

/// The lines of a file.
pub struct Credentials(Vec<(String, User)>);

impl Credentials {
    /// Reads a file. Nobody can log in with half a file: a bad line is an error.
    pub fn read(path: &Path) -> Result<Self, CredentialError> {
        let text = std::fs::read_to_string(path).map_err(|e| CredentialError::Read(path.into(), e))?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, CredentialError> {
        let mut all: Vec<(String, User)> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line_number = number + 1;
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let columns = columns(line);
            let [secret, name, uid, rest @ ..] = columns.as_slice() else {
                return Err(CredentialError::Columns {
                    path: path.into(),
                    line: line_number,
                    found: columns.len(),
                });
            };
            if secret.is_empty() || all.iter().any(|(known, user)| known == secret && user.name == *name) {
                return Err(CredentialError::Secret { path: path.into(), line: line_number });
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default().split(',');
            let groups = groups.map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned);
            let mut user = User::new(name.clone(), groups);
            user.uid = uid.clone();
            all.push((secret.clone(), user));
        }
        Ok(Self(all))
    }

    /// The user with this name and password.
    pub fn password(&self, name: &str, password: &str) -> Option<User> {
        let found = self.0.iter().find(|(_, user)| user.name == name);
        found.filter(|(secret, _)| same(secret.as_bytes(), password.as_bytes())).map(|(_, user)| user.clone())
    }
}

/// Cells of a CSV line; quotes keep commas.
fn columns(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(std::mem::take(&mut cell).trim().to_owned()),
            c => cell.push(c),
        }
    }
    cells.push(cell.trim().to_owned());
    cells
}

impl Credentials {
    /// The owner of a token.
    pub(super) fn known(&self, token: &str) -> Option<Authenticated> {
        let known = self.0.iter().find(|(secret, _)| same(secret.as_bytes(), token.as_bytes()));
        known.map(|(_, user)| Authenticated::for_this_server(user.clone()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_line_is_a_user() {
        let text = "t0ken,ann,7,\"dev,ops\"\n# nobody\n\nother,bob,8\n";
        let file = Credentials::parse(Path::new("f"), text).unwrap();
        let ann = file.known("t0ken").unwrap().user;
        assert_eq!((ann.name.as_str(), ann.uid.as_str()), ("ann", "7"));
        assert!(ann.in_group("dev") && ann.in_group("ops"));
        assert!(file.known("t0ke").is_none());
        assert_eq!(file.password("bob", "other").unwrap().uid, "8");
        assert!(file.password("bob", "t0ken").is_none());
        assert!(Credentials::parse(Path::new("f"), "a,b\n").is_err());
        assert!(Credentials::parse(Path::new("f"), ",b,c\n").is_err());
    }
}
