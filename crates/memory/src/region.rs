//! One stretch of mapped memory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// What keeps the size of a stretch, and itself, as they are.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// What another process that is given the descriptor can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read and write.
    OthersWrite,
    /// Read; only who created the memory writes there.
    OthersRead,
}

impl Access {
    fn seals(self) -> SealFlags {
        match self {
            Access::OthersWrite => SEALS,
            Access::OthersRead => SEALS.union(SealFlags::FUTURE_WRITE),
        }
    }

    fn protection(self) -> ProtFlags {
        match self {
            Access::OthersWrite => ProtFlags::READ | ProtFlags::WRITE,
            Access::OthersRead => ProtFlags::READ,
        }
    }
}

/// Memory of this process that another may have mapped, too.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Region {}

// SAFETY: through a shared reference bytes are touched as atomics, copied, or seen as values that no one changes then.
unsafe impl Sync for Region {}

impl Region {
    /// New memory, all zeros, and the descriptor by which another process maps it.
    pub(crate) fn create(bytes: usize, access: Access) -> io::Result<(Region, OwnedFd)> {
        let descriptor = memfd_create("bellwether", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&descriptor, bytes as u64)?;
        // First, as no mapping that writes can be made once that is sealed.
        let region = Region::map(descriptor.as_fd(), bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        fcntl_add_seals(&descriptor, access.seals())?;
        Ok((region, descriptor))
    }

    /// The memory behind a descriptor that came from another process, with that access.
    ///
    /// # Errors
    ///
    /// Returns an error unless its size is fixed, and for what `accepts` does not.
    pub(crate) fn open(
        descriptor: &OwnedFd,
        access: Access,
        accepts: impl Fn(usize) -> bool,
    ) -> io::Result<Region> {
        // Only a memory file has seals; any other descriptor fails here.
        if !fcntl_get_seals(descriptor)?.contains(access.seals()) {
            return Err(io::Error::other("the shared memory is not sealed: it could change under its users"));
        }
        let bytes = usize::try_from(fstat(descriptor)?.st_size).unwrap_or(0);
        match accepts(bytes) {
            true => Region::map(descriptor.as_fd(), bytes, access.protection()),
            false => Err(io::Error::other(format!("shared memory of {bytes} bytes is of no use"))),
        }
    }

    fn map(descriptor: BorrowedFd<'_>, bytes: usize, protection: ProtFlags) -> io::Result<Region> {
        // SAFETY: the system chooses an address where nothing is mapped, so no memory in use is replaced.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, descriptor, 0) }?;
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Region { base, bytes })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it lies in this process.
    pub(crate) fn address(&self) -> usize {
        self.base.as_ptr() as usize
    }

    /// A counter of 64 bits.
    ///
    /// # Panics
    ///
    /// If it does not lie within the region, or is not aligned.
    pub(crate) fn counter(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes, "the layout has a place for it");
        // SAFETY: within the mapping, as was just checked.
        let pointer = unsafe { self.base.add(offset) };
        // SAFETY: aligned (pages are), alive as long as `self`, and never accessed but as an atomic, here as there.
        unsafe { AtomicU64::from_ptr(pointer.as_ptr().cast()) }
    }

    /// A word of 32 bits.
    ///
    /// # Panics
    ///
    /// Same panics as [`counter`](Region::counter).
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.bytes, "the layout has a place for it");
        // SAFETY: within the mapping, as was just checked.
        let pointer = unsafe { self.base.add(offset) };
        // SAFETY: aligned (pages are), alive as long as `self`, and never accessed but as an atomic, here as there.
        unsafe { AtomicU32::from_ptr(pointer.as_ptr().cast()) }
    }

    /// Copies `from` into the region.
    ///
    /// # Panics
    ///
    /// If it does not fit there.
    pub(crate) fn put(&self, offset: usize, from: &[u8]) {
        let end = offset.checked_add(from.len());
        assert!(end.is_some_and(|end| end <= self.bytes), "a ring lies within its region");
        // SAFETY: within the mapping, as was just checked.
        let to = unsafe { self.base.add(offset) };
        // SAFETY: `to` has room for as many bytes. Private memory and the mapping do not overlap. No reference to these
        // bytes exists in this process, and the other one keeps away from them until they are published; one that does
        // not gets wrong bytes.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) }
    }

    /// Copies from the region.
    ///
    /// # Panics
    ///
    /// If it does not have as much there.
    pub(crate) fn get(&self, offset: usize, into: &mut [u8]) {
        let end = offset.checked_add(into.len());
        assert!(end.is_some_and(|end| end <= self.bytes), "a ring lies within its region");
        // SAFETY: within the mapping, as was just checked.
        let from = unsafe { self.base.add(offset) };
        // SAFETY: as in `put`, the other way round: what comes are bytes, of which every pattern is one.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) }
    }
}

/// For memory that only this process writes.
impl Region {
    fn pointer(&self, offset: usize, values: usize) -> NonNull<f32> {
        let end = values.checked_mul(4).and_then(|bytes| offset.checked_add(bytes));
        assert!(end.is_some_and(|end| end <= self.bytes), "a vector lies within its region");
        assert!(offset.is_multiple_of(4), "values are aligned");
        // SAFETY: within the mapping, as was just checked.
        unsafe { self.base.add(offset) }.cast()
    }

    /// Values that lie there, of which no other process and no [`values_mut`](Region::values_mut) has a mutable view.
    ///
    /// # Panics
    ///
    /// If they do not lie within the region, or are not aligned.
    pub(crate) fn values(&self, (offset, values): (usize, usize)) -> &[f32] {
        let pointer = self.pointer(offset, values);
        // SAFETY: within the mapping and aligned; every pattern of bits is an `f32`; what keeps it from changing is the
        // caller's, as it says above.
        unsafe { std::slice::from_raw_parts(pointer.as_ptr(), values) }
    }

    /// Values that lie there.
    ///
    /// # Safety
    ///
    /// No other reference to them may exist, and no other process may write there.
    ///
    /// # Panics
    ///
    /// Same panics as [`values`](Region::values).
    #[allow(clippy::mut_from_ref, reason = "the caller promises what the borrow checker cannot see")]
    pub(crate) unsafe fn values_mut(&self, (offset, values): (usize, usize)) -> &mut [f32] {
        let pointer = self.pointer(offset, values);
        // SAFETY: within the mapping and aligned; that it is the only reference is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(pointer.as_ptr(), values) }
    }

    /// Copies values from memory that another process may be writing.
    ///
    /// # Panics
    ///
    /// Same panics as [`values`](Region::values).
    pub(crate) fn get_values(&self, offset: usize, into: &mut [f32]) {
        let pointer = self.pointer(offset, into.len());
        // SAFETY: as many values lie there. One that changes meanwhile may come torn, and is some `f32` all the same.
        unsafe { std::ptr::copy_nonoverlapping(pointer.as_ptr(), into.as_mut_ptr(), into.len()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the stretch was mapped by `map`, and no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "what is mapped can be unmapped");
    }
}
