//! The control plane: gRPC between coordinator, workers, and whoever steers a run.
//!
//! `proto/bellwether.proto` is the contract. [`server`] is the coordinator's end, [`client`] that of
//! workers and of the command line; [`convert`] translates between the wire and [`crate::membership`].

pub mod client;
pub mod convert;
#[rustfmt::skip]
pub mod generated;
pub mod server;

use crate::state::hex;

/// Version of the control plane. Both ends must speak the same.
pub const PROTOCOL: u32 = 1;

/// Metadata key of the version.
pub(crate) const PROTOCOL_KEY: &str = "bellwether-protocol";

/// Metadata key of the token.
pub(crate) const TOKEN_KEY: &str = "authorization";

/// The job's token: who holds it may join and steer.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 32]);

impl Token {
    /// A new random token.
    ///
    /// # Errors
    ///
    /// When the system has no randomness to give.
    pub fn random() -> std::io::Result<Token> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|e| std::io::Error::other(e.to_string()))?;
        Ok(Token(bytes))
    }

    /// Reads 64 hexadecimal digits, white space around them ignored.
    ///
    /// ```
    /// use bellwether_runtime::control::Token;
    /// let text = "00".repeat(32);
    /// assert_eq!(Token::parse(&text).unwrap().to_text(), text);
    /// assert!(Token::parse("abc").is_none());
    /// ```
    pub fn parse(text: &str) -> Option<Token> {
        let digits: Vec<u8> =
            text.trim().chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
        let bytes: Vec<u8> = digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect();
        (digits.len() == 64).then(|| Token(bytes.try_into().expect("64 digits are 32 bytes")))
    }

    /// The token as 64 hexadecimal digits.
    pub fn to_text(&self) -> String {
        hex(&self.0)
    }

    /// The token's bytes, the key of the data plane's handshake.
    pub fn bytes(&self) -> [u8; 32] {
        self.0
    }

    /// Tag of the job on the data plane: names it without giving the token away.
    pub fn job_tag(&self) -> u64 {
        let hash = blake3::derive_key("bellwether data plane job tag", &self.0);
        u64::from_le_bytes(hash[..8].try_into().expect("a hash has 32 bytes"))
    }

    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.to_text())
    }

    /// Compares in a time that does not depend on where the difference is.
    pub(crate) fn matches(&self, bearer: &str) -> bool {
        blake3::hash(self.bearer().as_bytes()) == blake3::hash(bearer.as_bytes())
    }
}

impl std::fmt::Debug for Token {
    /// Never shows the token: it would end in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}
