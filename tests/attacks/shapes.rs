//! Objects made to break whoever reads them.
