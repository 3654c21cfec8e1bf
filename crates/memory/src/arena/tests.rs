//! Vectors that are read by others where they lie, and only while they may be.

use super::*;

fn shared(length: usize, vectors: usize) -> (Arena, View) {
    let arena = Arena::create(length, vectors).expect("memory");
    let descriptor = arena.descriptor().try_clone_to_owned().expect("a descriptor");
    let view = View::open(&descriptor).expect("the same memory");
    (arena, view)
}

#[test]
fn what_lies_in_a_vector_is_read_from_elsewhere() {
    let (arena, view) = shared(3000, 2);
    let (mut first, mut second) = (arena.vector(), arena.vector());
    first.iter_mut().enumerate().for_each(|(i, value)| *value = i as f32);
    second.fill(7.0);
    let mut into = [0.0; 10];
    let offset = arena.offset_of(&first[100..]).expect("it lies there");
    assert_eq!(view.read(arena.generation(), offset, &mut into), Ok(()));
    assert_eq!(into, std::array::from_fn(|i| 100.0 + i as f32));
    let offset = arena.offset_of(&second).expect("it lies there");
    assert_eq!(view.read(arena.generation(), offset, &mut into), Ok(()));
    assert_eq!(into, [7.0; 10]);
}

#[test]
fn a_full_arena_gives_memory_that_is_not_shared_and_takes_places_back() {
    let (arena, _view) = shared(5, 1);
    let first = arena.vector();
    let second = arena.vector();
    assert!(arena.offset_of(&first).is_some() && arena.offset_of(&second).is_none());
    assert_eq!((first.len(), second.len(), Vector::private(4).len()), (5, 5, 4));
    drop(first);
    assert!(arena.offset_of(&arena.vector()).is_some());
}

#[test]
fn what_was_revoked_is_not_read() {
    let (arena, view) = shared(100, 1);
    let generation = arena.generation();
    let mut into = [0.0; 100];
    assert_eq!(view.read(generation, 0, &mut into), Ok(()));
    arena.revoke();
    assert_eq!(view.read(generation, 0, &mut into), Err(Broken));
    assert_eq!(view.read(arena.generation(), 0, &mut into), Ok(()));
}

#[test]
fn no_offset_leads_outside() {
    let (arena, view) = shared(1024, 3);
    let mut into = [0.0; 8];
    assert_eq!(view.read(0, 3 * 1024 - 8, &mut into), Ok(()));
    for offset in [3 * 1024 - 7, 3 * 1024, u64::MAX / 4, u64::MAX / 2, u64::MAX] {
        assert_eq!(view.read(0, offset, &mut into), Err(Broken), "{offset}");
    }
    assert_eq!(arena.offset_of(&into), None);
    assert!(Arena::create(usize::MAX / 2, 3).is_err());
}

#[test]
fn others_cannot_write_there() {
    let (arena, _view) = shared(10, 1);
    let descriptor = arena.descriptor().try_clone_to_owned().expect("a descriptor");
    assert!(Region::open(&descriptor, Access::OthersWrite, |_| true).is_err(), "a mapping that writes");
    assert!(rustix::io::write(&descriptor, b"x").is_err(), "a write to the file");
    // A lane is not an arena, and an arena is not a lane.
    let (_lane, descriptor) = crate::Lane::create(4096).expect("memory");
    assert!(View::open(&descriptor).is_err());
    assert!(crate::Lane::open(&arena.descriptor().try_clone_to_owned().expect("a descriptor")).is_err());
}
