//! The kinds of trouble that are recognised.

use serde::{Serialize, Serializer};
use std::fmt;

macro_rules! troubles {
    ($(#[doc = $doc:literal] $variant:ident $name:literal $severity:ident;)*) => {
        /// A kind of trouble. Its name is part of the JSON output; `docs/why.md` lists all of them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Trouble {
            $(#[doc = $doc] $variant,)*
        }

        impl Trouble {
            /// Every kind of trouble, in the order of the documentation.
            pub const ALL: &'static [Trouble] = &[$(Trouble::$variant,)*];

            /// The name in JSON.
            pub fn name(self) -> &'static str {
                match self { $(Trouble::$variant => $name,)* }
            }

            /// How bad it is.
            pub fn severity(self) -> $crate::trouble::Severity {
                match self { $(Trouble::$variant => $crate::trouble::Severity::$severity,)* }
            }

            /// What it means, in one sentence.
            pub fn summary(self) -> &'static str {
                match self { $(Trouble::$variant => $doc.trim_ascii(),)* }
            }
        }
    };
}

// How bad it is.
mod severity;
// The table.
mod table;

pub use severity::Severity;
pub use table::Trouble;

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Trouble {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        writer.serialize_str(self.name())
    }
}
