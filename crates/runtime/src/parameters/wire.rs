//! Frames between workers and parameter servers: a fixed header of 64 bytes before every payload.
//!
//! Every frame names its job and phase. The decoder is a pure function over 64 bytes that neither panics nor allocates;
//! a length is only compared with what the receiver's own map says of the piece.
//!
//! Layout, little-endian: magic `u32`, kind `u8`, three zero bytes, payload length in bytes `u32`, piece `u32`, job
//! `u64`, phase `u64`, unit `u64`, step `u64`, version `u64`, scale `f32`, share `f32`.

use thiserror::Error;

/// Size of an encoded header in bytes.
pub const HEADER_BYTES: usize = 64;

/// First four bytes of every frame (`BWp1` when read as text).
pub const MAGIC: u32 = u32::from_le_bytes(*b"BWp1");

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A worker asks for a piece that is no older than `step`; no payload.
    Pull = 1,
    /// A piece's values, `version` updates old.
    Data = 2,
    /// A unit's gradient of a piece, computed from `version`.
    Push = 3,
    /// A gradient was applied; `version` is its staleness in updates, `step` is 1 when it had been applied before.
    Applied = 4,
    /// A whole piece for a replica: its values and its optimizer slots.
    Install = 5,
    /// For a replica: a unit that was applied to a piece; no payload.
    Known = 6,
    /// For a replica: units from `unit` to below `step` are complete; no payload. These come first.
    Complete = 7,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Pull,
            2 => Kind::Data,
            3 => Kind::Push,
            4 => Kind::Applied,
            5 => Kind::Install,
            6 => Kind::Known,
            7 => Kind::Complete,
            _ => return None,
        })
    }
}

/// What the frames of a connection belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Tag of the job.
    pub job: u64,
    /// Number of the phase: it changes with the protocol, and when servers are loaded again.
    pub phase: u64,
}

/// The header of one frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Header {
    /// What the frame is.
    pub kind: Kind,
    /// Payload bytes that follow.
    pub length_bytes: u32,
    /// Number of the piece in the map.
    pub piece: u32,
    /// What it belongs to.
    pub stamp: Stamp,
    /// The unit of work, or see [`Kind`].
    pub unit: u64,
    /// The unit's step, or see [`Kind`].
    pub step: u64,
    /// A piece's number of updates, or see [`Kind`].
    pub version: u64,
    /// Factor on the summed gradient. Of summed model state: the samples of the step.
    pub scale: f32,
    /// Factor on the learning rate, and on differences of the model state.
    pub share: f32,
}

/// A frame broke the protocol; its connection is not used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WireError {
    /// The bytes do not form a frame.
    #[error("bad frame magic {0:#010x}")]
    Magic(u32),
    /// The kind byte names no kind.
    #[error("unknown frame kind {0}")]
    Kind(u8),
    /// Bytes that must be zero are not.
    #[error("reserved bytes of a frame are not zero")]
    Reserved,
    /// The frame is of another job.
    #[error("frame of job {found:#x}, this is job {expected:#x}")]
    OtherJob {
        /// The receiver's job tag.
        expected: u64,
        /// The frame's job tag.
        found: u64,
    },
    /// The frame is of another phase.
    #[error("frame of phase {found}, this is phase {expected}")]
    OtherPhase {
        /// The receiver's phase.
        expected: u64,
        /// The frame's phase.
        found: u64,
    },
    /// The piece is not held here.
    #[error("piece {0} is not held here")]
    OtherPiece(u32),
    /// The payload is not as long as the map says.
    #[error("frame of {found} bytes where {expected} are due")]
    Length {
        /// Bytes by the receiver's map.
        expected: usize,
        /// Bytes the frame claims.
        found: u32,
    },
    /// A frame that has no place here: of the wrong kind, or of a step that is not due.
    #[error("frame {kind:?} of piece {piece} for step {step} out of turn")]
    OutOfTurn {
        /// The frame's kind.
        kind: Kind,
        /// The frame's piece.
        piece: u32,
        /// The frame's step.
        step: u64,
    },
}

impl Header {
    /// A header of zeros.
    pub fn new(kind: Kind, piece: u32, stamp: Stamp) -> Header {
        let (length_bytes, unit, step, version) = (0, 0, 0, 0);
        Header { kind, length_bytes, piece, stamp, unit, step, version, scale: 0.0, share: 0.0 }
    }

    /// The header as it goes over the wire.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[8..12].copy_from_slice(&self.length_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.piece.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.stamp.job.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.stamp.phase.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.unit.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.step.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.version.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.scale.to_le_bytes());
        bytes[60..64].copy_from_slice(&self.share.to_le_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    ///
    /// Returns [`WireError::Magic`], [`Kind`](WireError::Kind) or [`Reserved`](WireError::Reserved).
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, WireError> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if word(0) != MAGIC {
            return Err(WireError::Magic(word(0)));
        }
        let kind = Kind::from_byte(bytes[4]).ok_or(WireError::Kind(bytes[4]))?;
        if bytes[5..8] != [0; 3] {
            return Err(WireError::Reserved);
        }
        Ok(Header {
            kind,
            length_bytes: word(8),
            piece: word(12),
            stamp: Stamp { job: long(16), phase: long(24) },
            unit: long(32),
            step: long(40),
            version: long(48),
            scale: f32::from_bits(word(56)),
            share: f32::from_bits(word(60)),
        })
    }

    /// Refuses a frame of another job or phase.
    ///
    /// # Errors
    ///
    /// Returns the first of [`OtherJob`](WireError::OtherJob), [`OtherPhase`](WireError::OtherPhase) that applies.
    pub fn check(&self, here: &Stamp) -> Result<(), WireError> {
        if self.stamp.job != here.job {
            return Err(WireError::OtherJob { expected: here.job, found: self.stamp.job });
        }
        if self.stamp.phase != here.phase {
            return Err(WireError::OtherPhase { expected: here.phase, found: self.stamp.phase });
        }
        Ok(())
    }

    /// Refuses a payload of another length than is due.
    ///
    /// # Errors
    ///
    /// Returns [`WireError::Length`].
    pub fn check_length(&self, expected: usize) -> Result<(), WireError> {
        if self.length_bytes as usize != expected {
            return Err(WireError::Length { expected, found: self.length_bytes });
        }
        Ok(())
    }

    /// The error of a frame that has no place here.
    pub(super) fn out_of_turn(&self) -> WireError {
        WireError::OutOfTurn { kind: self.kind, piece: self.piece, step: self.step }
    }
}
