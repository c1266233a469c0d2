//! How many answers go on at a time. Each of them searches again and again.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// All of them.
const MOST: usize = 64;
/// Those of one user.
const MOST_OF_USER: usize = 8;

/// The places of those who follow timelines, by user.
#[derive(Debug, Clone, Default)]
pub(super) struct Followers(Arc<Mutex<HashMap<String, usize>>>);

/// The place of one follower.
#[derive(Debug)]
pub(super) struct Place {
    followers: Followers,
    user: String,
}

impl Followers {
    /// A place for a user, if there is one.
    pub(super) fn place(&self, user: &str) -> Option<Place> {
        let mut users = self.0.lock();
        let (all, own) = (users.values().sum::<usize>(), users.get(user).copied().unwrap_or_default());
        if all >= MOST || own >= MOST_OF_USER {
            return None;
        }
        users.insert(user.to_owned(), own + 1);
        Some(Place { followers: self.clone(), user: user.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut users = self.followers.0.lock();
        match users.get_mut(&self.user) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(users.remove(&self.user)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_all_places() {
        let followers = Followers::default();
        let mut places: Vec<Place> = (0..20).filter_map(|_| followers.place("ann")).collect();
        assert_eq!(places.len(), MOST_OF_USER);
        assert!(followers.place("bob").is_some());
        places.pop();
        places.extend(followers.place("ann"));
        assert_eq!(places.len(), MOST_OF_USER);
        for user in 0..MOST {
            places.extend(followers.place(&format!("user{user}")));
        }
        assert_eq!(places.len(), MOST);
        assert!(followers.place("bob").is_none());
        drop(places);
        assert!(followers.0.lock().is_empty());
    }
}
