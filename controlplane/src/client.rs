//! The in-process client.
