//! The ciphers of the channel, and the state of one of its directions.

use ring::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

/// Bytes that sealing adds to a message.
pub(super) const TAG_BYTES: usize = 16;

/// Records under one key; then both sides make a new one. Far below what either cipher bears (AES-GCM: about 2^22
/// records of this size at a chance of 2^-57 that an attacker wins).
const RECORDS_PER_KEY: u64 = 1 << 20;

/// How connections between the machines of a run are protected. It is part of the run's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Cipher {
    /// Fast on every processor.
    ChaCha20Poly1305 = 1,
    /// About three times as fast where the processor has instructions for it.
    Aes256Gcm = 2,
    /// The handshake alone: who is on the other side is certain when the connection begins, what follows can be read
    /// and changed on its way. Only by an explicit option.
    Unencrypted = 3,
}

impl Cipher {
    /// The faster encryption on this machine.
    pub fn fastest() -> Cipher {
        #[cfg(target_arch = "x86_64")]
        let quick = std::arch::is_x86_feature_detected!("aes")
            && std::arch::is_x86_feature_detected!("pclmulqdq")
            && std::arch::is_x86_feature_detected!("avx");
        #[cfg(target_arch = "aarch64")]
        let quick = std::arch::is_aarch64_feature_detected!("aes")
            && std::arch::is_aarch64_feature_detected!("pmull");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let quick = false;
        if quick { Cipher::Aes256Gcm } else { Cipher::ChaCha20Poly1305 }
    }

    /// Its name in a token's text.
    pub fn name(self) -> &'static str {
        match self {
            Cipher::ChaCha20Poly1305 => "chacha20-poly1305",
            Cipher::Aes256Gcm => "aes-256-gcm",
            Cipher::Unencrypted => "unencrypted",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Cipher> {
        [Cipher::ChaCha20Poly1305, Cipher::Aes256Gcm, Cipher::Unencrypted]
            .into_iter()
            .find(|c| c.name() == name)
    }

    /// The cipher's name in Noise; the handshake is encrypted in any case.
    pub(super) fn noise(self) -> &'static str {
        match self {
            Cipher::Aes256Gcm => "AESGCM",
            Cipher::ChaCha20Poly1305 | Cipher::Unencrypted => "ChaChaPoly",
        }
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Cipher::Aes256Gcm => &AES_256_GCM,
            Cipher::ChaCha20Poly1305 | Cipher::Unencrypted => &CHACHA20_POLY1305,
        }
    }
}

/// A record that the other side did not make, or not as the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damaged;

/// One direction of a connection: its key and the number of the next record.
///
/// The records are those of Noise's transport phase, sealed and opened in place.
pub(super) struct Direction {
    cipher: Cipher,
    key: LessSafeKey,
    next: u64,
}

impl Direction {
    /// The direction with one of the two keys that the handshake left.
    pub(super) fn new(cipher: Cipher, key: &[u8; 32]) -> Direction {
        Direction { cipher, key: new_key(cipher, key), next: 0 }
    }

    /// Encrypts `bytes` in place; the tag goes behind them.
    pub(super) fn seal(&mut self, bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        let nonce = self.advance();
        let sealed = self.key.seal_in_place_separate_tag(nonce, Aad::empty(), bytes);
        let tag = sealed.expect("a record is far shorter than what the cipher bears");
        tag.as_ref().try_into().expect("both ciphers have tags of 16 bytes")
    }

    /// Decrypts `bytes`, the last 16 of which are the tag, in place; what is left is at their front.
    pub(super) fn open(&mut self, bytes: &mut [u8]) -> Result<usize, Damaged> {
        let nonce = self.advance();
        self.key.open_in_place(nonce, Aad::empty(), bytes).map(|plain| plain.len()).map_err(|_| Damaged)
    }

    fn advance(&mut self) -> Nonce {
        if self.next > 0 && self.next.is_multiple_of(RECORDS_PER_KEY) {
            self.rekey();
        }
        let number = self.next;
        self.next += 1;
        self.nonce(number)
    }

    /// The number of a record as the nonce that Noise makes of it.
    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&match self.cipher {
            Cipher::Aes256Gcm => number.to_be_bytes(),
            Cipher::ChaCha20Poly1305 | Cipher::Unencrypted => number.to_le_bytes(),
        });
        Nonce::assume_unique_for_key(nonce)
    }

    /// Noise's `REKEY`: what the old key makes of zeros, under a number that no record has.
    fn rekey(&mut self) {
        let mut key = [0; 32];
        let sealed = self.key.seal_in_place_separate_tag(self.nonce(u64::MAX), Aad::empty(), &mut key);
        let _tag = sealed.expect("32 bytes are not too long");
        self.key = new_key(self.cipher, &key);
    }
}

fn new_key(cipher: Cipher, key: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(cipher.algorithm(), key).expect("both ciphers have keys of 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_comes_on_both_sides_at_the_same_record() {
        for cipher in [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
            let (mut here, mut there) = (Direction::new(cipher, &[3; 32]), Direction::new(cipher, &[3; 32]));
            (here.next, there.next) = (RECORDS_PER_KEY - 1, RECORDS_PER_KEY - 1);
            for number in 0..3_u8 {
                let mut bytes = vec![number; 40];
                let tag = here.seal(&mut bytes);
                bytes.extend(tag);
                assert_eq!(there.open(&mut bytes), Ok(40));
                assert_eq!(bytes[..40], [number; 40]);
            }
            // Not the old key any more.
            let old = new_key(cipher, &[3; 32]);
            let mut bytes = vec![7; 40];
            let tag = here.seal(&mut bytes);
            bytes.extend(tag);
            let nonce = here.nonce(here.next - 1);
            assert!(old.open_in_place(nonce, Aad::empty(), &mut bytes).is_err());
        }
    }
}
