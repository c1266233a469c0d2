//! The Coracle node agent.
