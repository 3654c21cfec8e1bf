//! Secrets of 32 random bytes, written as 64 hexadecimal digits: the daemon's token, sessions of browsers, keys of
//! submissions.

use std::fmt;
use std::io;

use ring::rand::{SecureRandom, SystemRandom};

/// 32 bytes that cannot be guessed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A new random one.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no randomness to give.
    pub fn random() -> io::Result<Secret> {
        let mut bytes = [0; 32];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_| io::Error::other("the system has no randomness to give"))?;
        Ok(Secret(bytes))
    }

    /// Reads 64 hexadecimal digits, white space around them ignored.
    ///
    /// ```
    /// use bellwether_serve::secret::Secret;
    /// let text = "0f".repeat(32);
    /// assert_eq!(Secret::parse(&text).unwrap().to_text(), text);
    /// assert!(Secret::parse("0f").is_none());
    /// ```
    pub fn parse(text: &str) -> Option<Secret> {
        // A hash is 32 bytes that are written so.
        Some(Secret(*blake3::Hash::from_hex(text.trim()).ok()?.as_bytes()))
    }

    /// It as 64 hexadecimal digits.
    pub fn to_text(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// Another secret, for another purpose: it follows from this one, and this one not from it.
    pub(crate) fn derive(&self, purpose: &str) -> Secret {
        Secret(blake3::derive_key(purpose, &self.0))
    }
}

impl fmt::Debug for Secret {
    /// Never shows it: it would end in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
