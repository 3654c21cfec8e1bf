//! Frames of the data plane: a fixed header of 40 bytes before every payload.
//!
//! Every frame names its job, membership epoch and step, so that nothing of another job, an older
//! membership or another step is ever added to a sum. The decoder is a pure function over 40 bytes:
//! it neither panics nor allocates, and the length it reads is only compared with the length that
//! the receiver's own plan expects.
//!
//! Layout, little-endian: magic `u32`, kind `u8`, three zero bytes, payload length in bytes `u32`,
//! index `u32`, job `u64`, membership epoch `u64`, step `u64`.

use thiserror::Error;

/// Size of an encoded frame header in bytes.
pub const FRAME_HEADER_BYTES: usize = 40;

/// First four bytes of every frame (`BWf1` when read as text).
pub const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"BWf1");

/// Largest control payload in bytes.
pub const CONTROL_BYTES_MAX: usize = 64 * 1024;

/// What a frame's payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Control bytes of a member, of its group, or of all members; the first frame of its step is one.
    Control = 1,
    /// Partial sums of one piece that the receiver adds up: the sender's, or those of its group.
    Contribution = 2,
    /// One piece of the final sum.
    Result = 3,
    /// Where the sender's partial sums and its sum lie in memory that the receiver can read: it need not be sent them.
    Lent = 4,
    /// The sender has read all that it was lent.
    Returned = 5,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<FrameKind> {
        match byte {
            1 => Some(FrameKind::Control),
            2 => Some(FrameKind::Contribution),
            3 => Some(FrameKind::Result),
            4 => Some(FrameKind::Lent),
            5 => Some(FrameKind::Returned),
            _ => None,
        }
    }
}

/// What a message belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Tag of the job.
    pub job: u64,
    /// Membership epoch.
    pub epoch: u64,
    /// Training step.
    pub step: u64,
}

/// A frame broke the protocol; its connection is not used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProtocolError {
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
    /// The frame is of another membership epoch.
    #[error("frame of membership epoch {found}, this is epoch {expected}")]
    OtherEpoch {
        /// The receiver's epoch.
        expected: u64,
        /// The frame's epoch.
        found: u64,
    },
    /// The frame is of another step.
    #[error("frame of step {found}, this is step {expected}")]
    OtherStep {
        /// The receiver's step.
        expected: u64,
        /// The frame's step.
        found: u64,
    },
    /// The payload is not as long as the plan says.
    #[error("frame of {found} bytes where {expected} are due")]
    Length {
        /// Bytes by the receiver's plan (for control bytes, the most allowed).
        expected: u64,
        /// Bytes the frame claims.
        found: u64,
    },
    /// A control frame is not the control bytes of those members whose it should be.
    #[error("a frame that is not the control bytes of {members} members")]
    ControlBytes {
        /// How many.
        members: usize,
    },
    /// A frame out of turn: of the wrong kind, or not the next index.
    #[error("frame {kind:?} {index} out of turn")]
    OutOfTurn {
        /// The frame's kind.
        kind: FrameKind,
        /// The frame's index.
        index: u32,
    },
}

/// The header of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the payload is.
    pub kind: FrameKind,
    /// Payload bytes that follow.
    pub length_bytes: u32,
    /// Which piece (0 for control bytes).
    pub index: u32,
    /// What the frame belongs to.
    pub stamp: Stamp,
}

impl FrameHeader {
    /// The header as it goes over the wire.
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[8..12].copy_from_slice(&self.length_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.index.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.stamp.job.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.stamp.epoch.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.stamp.step.to_le_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    ///
    /// Returns [`ProtocolError::Magic`], [`Kind`](ProtocolError::Kind) or [`Reserved`](ProtocolError::Reserved).
    /// Whether the frame is due is for [`check`](FrameHeader::check) and the plan to say.
    pub fn decode(bytes: &[u8; FRAME_HEADER_BYTES]) -> Result<FrameHeader, ProtocolError> {
        let magic = read_u32(bytes, 0);
        if magic != FRAME_MAGIC {
            return Err(ProtocolError::Magic(magic));
        }
        let kind = FrameKind::from_byte(bytes[4]).ok_or(ProtocolError::Kind(bytes[4]))?;
        if bytes[5..8] != [0, 0, 0] {
            return Err(ProtocolError::Reserved);
        }
        Ok(FrameHeader {
            kind,
            length_bytes: read_u32(bytes, 8),
            index: read_u32(bytes, 12),
            stamp: Stamp { job: read_u64(bytes, 16), epoch: read_u64(bytes, 24), step: read_u64(bytes, 32) },
        })
    }

    /// Refuses a frame of another job, membership epoch or step.
    ///
    /// # Errors
    ///
    /// Returns the first of [`OtherJob`](ProtocolError::OtherJob), [`OtherEpoch`](ProtocolError::OtherEpoch),
    /// [`OtherStep`](ProtocolError::OtherStep) that applies.
    pub fn check(&self, here: &Stamp) -> Result<(), ProtocolError> {
        let there = &self.stamp;
        if there.job != here.job {
            return Err(ProtocolError::OtherJob { expected: here.job, found: there.job });
        }
        if there.epoch != here.epoch {
            return Err(ProtocolError::OtherEpoch { expected: here.epoch, found: there.epoch });
        }
        if there.step != here.step {
            return Err(ProtocolError::OtherStep { expected: here.step, found: there.step });
        }
        Ok(())
    }
}

fn read_u32(bytes: &[u8; FRAME_HEADER_BYTES], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(value)
}

fn read_u64(bytes: &[u8; FRAME_HEADER_BYTES], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> impl Strategy<Value = FrameHeader> {
        let kind =
            prop_oneof![Just(FrameKind::Control), Just(FrameKind::Contribution), Just(FrameKind::Result)];
        (kind, any::<u32>(), any::<u32>(), any::<(u64, u64, u64)>()).prop_map(
            |(kind, length_bytes, index, (job, epoch, step))| FrameHeader {
                kind,
                length_bytes,
                index,
                stamp: Stamp { job, epoch, step },
            },
        )
    }

    proptest! {
        #[test]
        fn a_header_survives_the_wire(header in header()) {
            prop_assert_eq!(FrameHeader::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn random_bytes_never_panic_and_what_decodes_encodes_back(
            mut bytes in any::<[u8; 32]>(), rest in any::<[u8; 8]>(), repair in any::<bool>()
        ) {
            if repair {
                bytes[0..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
                bytes[4] %= 5;
                bytes[5..8].fill(0);
            }
            let mut whole = [0; FRAME_HEADER_BYTES];
            whole[..32].copy_from_slice(&bytes);
            whole[32..].copy_from_slice(&rest);
            if let Ok(header) = FrameHeader::decode(&whole) {
                prop_assert_eq!(header.encode(), whole);
            }
        }

        #[test]
        fn one_flipped_bit_is_another_header_or_refused(header in header(), bit in 0usize..320) {
            let mut bytes = header.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_ne!(FrameHeader::decode(&bytes), Ok(header));
        }
    }

    #[test]
    fn frames_of_another_job_epoch_or_step_are_refused() {
        let here = Stamp { job: 1, epoch: 2, step: 3 };
        let frame = |stamp| FrameHeader { kind: FrameKind::Control, length_bytes: 0, index: 0, stamp };
        assert_eq!(frame(here).check(&here), Ok(()));
        let other = frame(Stamp { job: 9, ..here }).check(&here);
        assert_eq!(other, Err(ProtocolError::OtherJob { expected: 1, found: 9 }));
        let other = frame(Stamp { epoch: 1, ..here }).check(&here);
        assert_eq!(other, Err(ProtocolError::OtherEpoch { expected: 2, found: 1 }));
        let other = frame(Stamp { step: 4, ..here }).check(&here);
        assert_eq!(other, Err(ProtocolError::OtherStep { expected: 3, found: 4 }));
    }
}
