//! How a file of comma-separated values is read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What stands between two fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Separator {
    /// `,`
    #[serde(rename = ",")]
    Comma,
    /// `;`
    #[serde(rename = ";")]
    Semicolon,
    /// A tab
    #[serde(rename = "\t")]
    Tab,
    /// `|`
    #[serde(rename = "|")]
    Bar,
}

impl Separator {
    /// All of them; where two may be meant, the later one is less likely.
    pub const ALL: [Separator; 4] = [Separator::Tab, Separator::Semicolon, Separator::Bar, Separator::Comma];

    /// Its byte.
    pub fn byte(self) -> u8 {
        match self {
            Separator::Comma => b',',
            Separator::Semicolon => b';',
            Separator::Tab => b'\t',
            Separator::Bar => b'|',
        }
    }

    /// It as a text, as the job file has it.
    pub fn name(self) -> &'static str {
        match self {
            Separator::Comma => ",",
            Separator::Semicolon => ";",
            Separator::Tab => "\t",
            Separator::Bar => "|",
        }
    }
}

/// How features are brought to one size. What decides it is taken from the training samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Normalise {
    /// As they are.
    #[default]
    None,
    /// Each gets mean 0 and standard deviation 1.
    Standard,
    /// Each lies in 0…1.
    Range,
}

impl Normalise {
    // Serde hands over a reference.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub(super) fn is_none(&self) -> bool {
        *self == Normalise::None
    }
}
