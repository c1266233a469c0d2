//! Tasks that die.
