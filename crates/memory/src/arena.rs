//! Vectors that other processes of this machine may read where they lie.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::lane::Broken;
use crate::region::{Access, Region};

/// Where the vectors begin: behind a page with the generation.
const VECTORS: usize = 4096;

/// Vectors begin at pages.
const PAGE_BYTES: usize = 4096;

/// Room for some vectors of one length, in memory that others can map, and only read.
///
/// Memory is taken as it is first used, so room that is never used costs nothing. Clones are the same arena.
#[derive(Debug, Clone)]
pub struct Arena {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    region: Region,
    descriptor: OwnedFd,
    length: usize,
    /// Places that no [`Vector`] has.
    free: Mutex<Vec<usize>>,
}

impl Inner {
    fn free(&self) -> MutexGuard<'_, Vec<usize>> {
        // Whole whatever thread panicked while it held the lock.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A vector of `f32`, in an arena or not.
#[derive(Debug)]
pub struct Vector(Memory);

#[derive(Debug)]
enum Memory {
    Private(Vec<f32>),
    Shared { arena: Arc<Inner>, place: usize },
}

fn stride_bytes(length: usize) -> Option<usize> {
    length.checked_mul(4)?.checked_next_multiple_of(PAGE_BYTES)
}

impl Arena {
    /// Room for `vectors` vectors of `length` values.
    ///
    /// # Errors
    ///
    /// Returns an error if the system gives no memory of this kind.
    pub fn create(length: usize, vectors: usize) -> io::Result<Arena> {
        let bytes = stride_bytes(length).and_then(|stride| stride.checked_mul(vectors)?.checked_add(VECTORS));
        let bytes = bytes.filter(|bytes| *bytes <= isize::MAX as usize);
        let bytes = bytes.ok_or_else(|| io::Error::other("a vector too long to be shared"))?;
        let (region, descriptor) = Region::create(bytes, Access::OthersRead)?;
        let free = Mutex::new((0..vectors).rev().collect());
        Ok(Arena { inner: Arc::new(Inner { region, descriptor, length, free }) })
    }

    /// A vector with room in the arena, its values unspecified, or with memory of its own where the arena is full.
    pub fn vector(&self) -> Vector {
        let place = self.inner.free().pop();
        match place {
            Some(place) => Vector(Memory::Shared { arena: Arc::clone(&self.inner), place }),
            None => Vector::private(self.inner.length),
        }
    }

    /// Where these values begin in the arena, counted in values from its first, if they lie there.
    pub fn offset_of(&self, values: &[f32]) -> Option<u64> {
        let first = self.inner.region.address() + VECTORS;
        let offset = (values.as_ptr() as usize).checked_sub(first)?;
        let end = self.inner.region.bytes() - VECTORS;
        (offset.checked_add(4 * values.len())? <= end).then_some(offset as u64 / 4)
    }

    /// What others map the arena by.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.inner.descriptor.as_fd()
    }

    /// The number that a reader of these vectors has to be told.
    pub fn generation(&self) -> u64 {
        self.inner.region.counter(0).load(Ordering::Relaxed)
    }

    /// Ends all reading of what was written so far: readers who were told an older generation find out.
    pub fn revoke(&self) {
        self.inner.region.counter(0).fetch_add(1, Ordering::Relaxed);
        // Before any value that is written from now on.
        fence(Ordering::SeqCst);
    }
}

impl Vector {
    /// A vector of zeros that no other process can read.
    pub fn private(length: usize) -> Vector {
        Vector(Memory::Private(vec![0.0; length]))
    }
}

impl Deref for Vector {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &self.0 {
            Memory::Private(values) => values,
            Memory::Shared { arena, place } => arena.region.values(range_of(arena, *place)),
        }
    }
}

impl DerefMut for Vector {
    fn deref_mut(&mut self) -> &mut [f32] {
        match &mut self.0 {
            Memory::Private(values) => values,
            Memory::Shared { arena, place } => {
                let range = range_of(arena, *place);
                // SAFETY: no other `Vector` has this place, this one is borrowed mutably, and other processes cannot
                // write there: the seal was set before the descriptor could leave this one.
                unsafe { arena.region.values_mut(range) }
            }
        }
    }
}

/// Where the vector in a place begins in its region, in bytes, and how many values it has.
fn range_of(arena: &Inner, place: usize) -> (usize, usize) {
    let stride = stride_bytes(arena.length).expect("the arena was made with it");
    (VECTORS + place * stride, arena.length)
}

impl Drop for Vector {
    fn drop(&mut self) {
        if let Memory::Shared { arena, place } = &self.0 {
            arena.free().push(*place);
        }
    }
}

/// Another process's arena, to be read.
#[derive(Debug)]
pub struct View {
    region: Region,
}

impl View {
    /// Maps what another process has passed on.
    ///
    /// # Errors
    ///
    /// Returns an error if it is not an arena, or the system gives no memory.
    pub fn open(descriptor: &OwnedFd) -> io::Result<View> {
        let accepts = |bytes: usize| bytes >= VECTORS && bytes.is_multiple_of(PAGE_BYTES);
        Ok(View { region: Region::open(descriptor, Access::OthersRead, accepts)? })
    }

    /// Copies values that begin at `offset`, as the owner counts, while they are of this generation.
    ///
    /// # Errors
    ///
    /// Returns [`Broken`] if the owner has ended their reading, and if no values can lie there.
    pub fn read(&self, generation: u64, offset: u64, into: &mut [f32]) -> Result<(), Broken> {
        let bytes =
            offset.checked_mul(4).and_then(|bytes| bytes.checked_add(VECTORS as u64)).ok_or(Broken)?;
        let end = bytes.checked_add(4 * into.len() as u64).ok_or(Broken)?;
        if end > self.region.bytes() as u64 {
            return Err(Broken);
        }
        self.region.get_values(bytes as usize, into);
        // What was copied is right if the owner had not begun to change it when all was copied.
        fence(Ordering::SeqCst);
        let now = self.region.counter(0).load(Ordering::Relaxed);
        if now == generation { Ok(()) } else { Err(Broken) }
    }
}

#[cfg(test)]
mod tests;
