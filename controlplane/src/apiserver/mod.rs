//! The request's journey, top down.
