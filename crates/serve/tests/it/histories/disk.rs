//! A disk that keeps a ledger, refuses a write, and forgets what was not synced when the power is lost.

use std::io::{self, Cursor, Read};
use std::time::Duration;

use bellwether_serve::ledger::{Keep, Store};

use super::replay::Followed;
use super::world::Shared;
use bellwether_testkit::Random;

#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) bytes: Vec<u8>,
    /// Of these nothing is forgotten.
    synced: usize,
    /// What was there before it was compacted, and how much of that is not forgotten, until that lasts.
    before: Option<(Vec<u8>, usize)>,
    /// Appends until one is refused for good.
    pub(crate) appends_left: Option<u64>,
    /// It is full until then.
    pub(crate) full_until: Duration,
    /// Whether one was.
    pub(crate) refused: bool,
}

impl Disk {
    pub(crate) fn lose_power(&mut self, random: &mut Random) {
        if let Some((bytes, synced)) = self.before.take().filter(|_| random.below(2) == 0) {
            (self.bytes, self.synced) = (bytes, synced);
        }
        let unsynced = (self.bytes.len() - self.synced) as u64;
        self.bytes.truncate(self.synced + random.below(unsynced + 1) as usize);
    }

    /// A line in the middle is lost, or half of it; says which it was.
    pub(crate) fn damage(&mut self, random: &mut Random) -> Option<String> {
        let text = String::from_utf8(self.bytes.clone()).ok()?;
        let mut lines: Vec<&str> = text.lines().collect();
        if lines.len() < 4 {
            return None;
        }
        let place = 1 + random.below(lines.len() as u64 - 2) as usize;
        let line = lines[place];
        match random.below(3) {
            0 => drop(lines.remove(place)),
            1 => lines[place] = &line[..line.len() / 2],
            _ => lines[place] = "\0\0\0\0\0\0\0\0",
        }
        self.bytes = (lines.join("\n") + "\n").into_bytes();
        self.synced = self.bytes.len();
        Some(line.to_owned())
    }
}

/// The disk, as the daemon sees it.
pub(crate) struct PlayedStore(pub(crate) Shared);

fn refused() -> io::Error {
    io::Error::other("no space left on device")
}

impl Store for PlayedStore {
    fn read(&mut self) -> io::Result<Box<dyn Read>> {
        Ok(Box::new(Cursor::new(self.0.lock().disk.bytes.clone())))
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        let disk = &mut self.0.lock().disk;
        disk.bytes.truncate(bytes as usize);
        disk.synced = disk.synced.min(disk.bytes.len());
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut world = self.0.lock();
        let was_dead = world.dead;
        let mut written = if world.deed() { bytes.len() } else { 0 };
        let is_full = world.disk.appends_left == Some(0);
        world.disk.appends_left = world.disk.appends_left.and_then(|left| left.checked_sub(1));
        let has_no_room = world.elapsed < world.disk.full_until;
        if !was_dead && (is_full || has_no_room || world.dead) {
            // A part may be there.
            written = world.random.below(bytes.len() as u64 + 1) as usize;
        }
        world.disk.bytes.extend_from_slice(&bytes[..written]);
        if is_full {
            world.disk.refused = true;
            world.tell(|| "the disk refuses a write".into());
            world.count("writes refused", 1);
        }
        match (world.dead || is_full, has_no_room) {
            (true, _) => Err(refused()),
            (_, true) => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut world = self.0.lock();
        if !world.deed() {
            return Err(refused());
        }
        world.disk.synced = world.disk.bytes.len();
        world.disk.before = None;
        Ok(())
    }

    fn replace(&mut self, bytes: &[u8], keep: Keep) -> io::Result<String> {
        let mut world = self.0.lock();
        if !world.deed() {
            return Err(refused());
        }
        if keep == Keep::Before && world.elapsed < world.disk.full_until {
            world.count("ledgers too large to compact", 1);
            return Err(io::ErrorKind::StorageFull.into());
        }
        let before = std::mem::replace(&mut world.disk.bytes, bytes.to_vec());
        let synced = std::mem::replace(&mut world.disk.synced, bytes.len());
        world.followed = Followed::default();
        if keep == Keep::Before {
            world.disk.before = Some((before, synced));
            world.count("ledgers compacted", 1);
        } else {
            world.is_misled = false;
            world.count("ledgers repaired", 1);
        }
        Ok("elsewhere".into())
    }
}
