//! The secret of a run.

use super::cipher::Cipher;
use crate::state::hex;

/// Digits of the secret in a token's text.
const DIGITS: usize = 64;

/// The run's token: its holders may join and steer.
///
/// It also names the run's cipher, so that all processes of a run use the same one and no peer can negotiate another.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    secret: [u8; 32],
    cipher: Cipher,
}

impl Token {
    /// A new random token, with the cipher that is fastest on this machine.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no randomness to give.
    pub fn random() -> std::io::Result<Token> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|e| std::io::Error::other(e.to_string()))?;
        Ok(Token { secret, cipher: Cipher::fastest() })
    }

    /// The token with this secret, which has to be as good as a random one, and this cipher.
    pub fn of_secret(secret: [u8; 32], cipher: Cipher) -> Token {
        Token { secret, cipher }
    }

    /// A key for another purpose than a run's connections: it follows from the secret, and the secret not from it.
    pub fn key_for(&self, purpose: &str) -> [u8; 32] {
        blake3::derive_key(purpose, &self.secret)
    }

    /// The same secret with this cipher; for the channel it is another token.
    #[must_use]
    pub fn with_cipher(self, cipher: Cipher) -> Token {
        Token { cipher, ..self }
    }

    /// Reads 64 hexadecimal digits and the cipher's name, which may be missing; white space around them is ignored.
    ///
    /// ```
    /// use bellwether_runtime::channel::{Cipher, Token};
    /// let digits = "00".repeat(32);
    /// let token = Token::parse(&digits).unwrap();
    /// assert_eq!(token.cipher(), Cipher::ChaCha20Poly1305);
    /// assert_eq!(Token::parse(&token.to_text()), Some(token));
    /// assert_eq!(Token::parse(&format!("{digits} aes-256-gcm")).unwrap().cipher(), Cipher::Aes256Gcm);
    /// assert!(Token::parse("abc").is_none());
    /// ```
    pub fn parse(text: &str) -> Option<Token> {
        let mut words = text.split_ascii_whitespace();
        let digits = words.next()?;
        let cipher = words.next().map_or(Some(Cipher::ChaCha20Poly1305), Cipher::from_name)?;
        let digits: Vec<u8> =
            digits.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
        if digits.len() != DIGITS || words.next().is_some() {
            return None;
        }
        let bytes: Vec<u8> = digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect();
        Some(Token { secret: bytes.try_into().expect("64 digits are 32 bytes"), cipher })
    }

    /// The token as text, for the file that every joining process must have.
    pub fn to_text(&self) -> String {
        format!("{} {}", hex(&self.secret), self.cipher.name())
    }

    /// How the run's connections between machines are protected.
    pub fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// Tag of the run in handshakes and frames: names it without giving the token away.
    pub fn job_tag(&self) -> u64 {
        let hash = blake3::derive_key("bellwether data plane job tag", &self.secret);
        u64::from_le_bytes(hash[..8].try_into().expect("a hash has 32 bytes"))
    }

    /// The pre-shared key of the handshake.
    pub(super) fn handshake_key(&self) -> [u8; 32] {
        let mut hasher =
            blake3::Hasher::new_derive_key("bellwether channel: pre-shared key of the handshake");
        hasher.update(&self.secret).update(self.cipher.name().as_bytes());
        *hasher.finalize().as_bytes()
    }
}

impl std::fmt::Debug for Token {
    /// Never shows the token: it would end in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}
