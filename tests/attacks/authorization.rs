//! Requests that mean something else than they look like.
