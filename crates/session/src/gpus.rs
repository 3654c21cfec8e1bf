//! The GPUs of this machine: each worker gets one of its own as long as there are enough, and none sees another.
//!
//! A framework takes the first GPU that it sees. So a worker is started with `CUDA_VISIBLE_DEVICES`, which names one.

use std::fs::File;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether_core::ParseError;
use bellwether_runtime::coordinator::Spawned;

/// The variable by which a process sees some GPUs only.
pub(crate) const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// GPUs of this machine that workers may compute on.
#[derive(Debug, Clone, Default)]
pub struct Gpus {
    slots: Arc<Mutex<Vec<Slot>>>,
}

#[derive(Debug)]
struct Slot {
    /// As `CUDA_VISIBLE_DEVICES` names it: a number or a UUID.
    name: String,
    workers: u32,
    /// Locked while a worker computes there, so that other runs of this machine take another GPU first.
    lock: Option<File>,
}

/// One worker's use of a GPU, until it is dropped.
#[derive(Debug)]
pub struct Place {
    gpus: Gpus,
    slot: usize,
    name: String,
}

impl Gpus {
    /// Those that this process may see: the ones that `CUDA_VISIBLE_DEVICES` names, or else all of the machine.
    pub fn of_machine() -> Gpus {
        let told = std::env::var(VISIBLE_DEVICES).ok();
        let names = match told {
            Some(text) => {
                text.split(',').map(str::trim).map(String::from).take_while(|name| is_name(name)).collect()
            }
            None => present(),
        };
        Gpus::named(names)
    }

    fn named(names: Vec<String>) -> Gpus {
        let slot = |name| Slot { name, workers: 0, lock: None };
        Gpus { slots: Arc::new(Mutex::new(names.into_iter().map(slot).collect())) }
    }

    /// Their names, as `CUDA_VISIBLE_DEVICES` takes them.
    pub fn names(&self) -> Vec<String> {
        self.slots().iter().map(|slot| slot.name.clone()).collect()
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        // A panic while it was held leaves counts that may be one too high.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A GPU for one more worker: one without a worker of this run or another, if there is one, and else that with the
    /// fewest workers of this run. `None` where there are no GPUs.
    pub fn place(&self) -> Option<Place> {
        let mut slots = self.slots();
        let free = (0..slots.len()).filter(|slot| slots[*slot].workers == 0).find_map(|slot| {
            let lock = lock(&slots[slot].name)?;
            Some((slot, lock))
        });
        let slot = match free {
            Some((slot, lock)) => {
                slots[slot].lock = Some(lock);
                slot
            }
            None => (0..slots.len()).min_by_key(|slot| slots[*slot].workers)?,
        };
        slots[slot].workers += 1;
        Some(Place { gpus: self.clone(), slot, name: slots[slot].name.clone() })
    }
}

impl FromStr for Gpus {
    type Err = ParseError;

    /// `all`, or names of GPUs with commas between.
    fn from_str(text: &str) -> Result<Gpus, ParseError> {
        if text == "all" {
            return Ok(Gpus::of_machine());
        }
        let names: Vec<String> = text.split(',').map(str::trim).map(String::from).collect();
        let twice = (1..names.len()).any(|at| names[..at].contains(&names[at]));
        if twice || !names.iter().all(|name| is_name(name)) {
            let expected = "`all`, or numbers of GPUs with commas between, each once, for example 0,1";
            return Err(ParseError::new("GPUs", text, expected));
        }
        Ok(Gpus::named(names))
    }
}

impl Place {
    /// What a process is told that computes here.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let wanted = [
            (VISIBLE_DEVICES, self.name.clone()),
            // A worker that comes may share the GPU for a moment with the one whose place it takes, so none takes all
            // of its memory in advance.
            ("XLA_PYTHON_CLIENT_PREALLOCATE", "false".into()),
            ("TF_FORCE_GPU_ALLOW_GROWTH", "true".into()),
        ];
        let is_free = |name: &str| name == VISIBLE_DEVICES || std::env::var_os(name).is_none();
        wanted.into_iter().filter(|(name, _)| is_free(name)).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut slots = self.gpus.slots();
        if let Some(slot) = slots.get_mut(self.slot) {
            slot.workers = slot.workers.saturating_sub(1);
            if slot.workers == 0 {
                slot.lock = None;
            }
        }
    }
}

/// A worker's process that keeps its GPU until it has ended, or its run gave it up.
pub(crate) struct Placed {
    pub(crate) process: Box<dyn Spawned>,
    pub(crate) place: Option<Place>,
}

impl Spawned for Placed {
    fn ended(&mut self) -> Option<String> {
        let ended = self.process.ended();
        if ended.is_some() {
            self.place = None;
        }
        ended
    }

    fn is_awaited(&mut self) -> bool {
        self.process.is_awaited()
    }

    fn warn(&mut self) {
        self.process.warn();
    }

    fn kill(&mut self) {
        self.process.kill();
    }

    fn end(&mut self) {
        self.process.end();
    }

    fn given_up(&mut self) {
        // The newcomer may be started before the process that it replaces was seen to end. If that one comes back, it
        // shares the GPU.
        self.place = None;
        self.process.given_up();
    }
}

fn is_name(name: &str) -> bool {
    let is_uuid = name.starts_with("GPU-") || name.starts_with("MIG-");
    let characters = name.chars().all(|c| c.is_ascii_alphanumeric() || "-/".contains(c));
    characters && (is_uuid || name.parse::<u16>().is_ok())
}

/// The numbers of the GPUs whose driver shows them: `/dev/nvidia0` and so on.
fn present() -> Vec<String> {
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let number = |name: String| name.strip_prefix("nvidia")?.parse::<u16>().ok();
    let mut numbers: Vec<u16> =
        entries.filter_map(|entry| entry.file_name().into_string().ok().and_then(number)).collect();
    numbers.sort_unstable();
    // CUDA counts those that are there from 0, whatever their minor numbers are.
    (0..numbers.len()).map(|number| number.to_string()).collect()
}

/// Locks a GPU among the runs of this machine, until the file is closed. `None` if another run computes there.
fn lock(name: &str) -> Option<File> {
    let folder = lock_folder();
    let file = std::fs::create_dir_all(&folder)
        .and_then(|()| File::options().create(true).append(true).open(folder.join(name.replace('/', "-"))));
    match file {
        Ok(file) => file.try_lock().is_ok().then_some(file),
        // Where nothing can be locked every run counts for itself.
        Err(_) => File::open("/dev/null").ok(),
    }
}

fn lock_folder() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("bellwether-gpus-{user}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_has_a_gpu_of_its_own_until_there_are_more_workers() {
        let gpus: Gpus = "9001,9002".parse().expect("two GPUs");
        let first = gpus.place().expect("a place");
        let second = gpus.place().expect("a place");
        let third = gpus.place().expect("a place");
        assert_eq!([&*first.name, &*second.name, &*third.name], ["9001", "9002", "9001"]);
        drop(second);
        assert_eq!(gpus.place().expect("a place").name, "9002", "the one that was left");
    }

    /// A process that does not end.
    struct Endless;

    impl Spawned for Endless {
        fn ended(&mut self) -> Option<String> {
            None
        }

        fn warn(&mut self) {}

        fn kill(&mut self) {}

        fn end(&mut self) {}
    }

    #[test]
    fn a_newcomer_has_the_gpu_of_the_one_that_was_given_up() {
        let gpus: Gpus = "9021,9022".parse().expect("two GPUs");
        let start = || Placed { process: Box::new(Endless), place: gpus.place() };
        let name = |placed: &Placed| placed.place.as_ref().expect("a place").name.clone();
        let (mut first, mut second) = (start(), start());
        assert_eq!((&*name(&first), &*name(&second)), ("9021", "9022"));
        assert_eq!((first.ended(), second.ended()), (None, None));
        second.given_up();
        assert_eq!(name(&start()), "9022");
        assert_eq!(name(&first), "9021");
    }

    #[test]
    fn another_run_takes_the_gpu_that_is_free() {
        let (one, other): (Gpus, Gpus) =
            ("9011,9012".parse().expect("two"), "9011,9012".parse().expect("two"));
        let mine = one.place().expect("a place");
        let theirs = other.place().expect("a place");
        assert_eq!((&*mine.name, &*theirs.name), ("9011", "9012"));
        drop(mine);
        assert_eq!(other.place().expect("a place").name, "9011");
        assert_eq!(Gpus::default().place().map(|place| place.name.clone()), None);
    }

    #[test]
    fn names_of_gpus_are_numbers_or_uuids_each_once() {
        assert_eq!(
            "0, 3,GPU-8932f937-d72c".parse::<Gpus>().expect("three").names(),
            ["0", "3", "GPU-8932f937-d72c"]
        );
        for wrong in ["", "0,0", "-1", "first", "0;1", "GPU-a b", "0,"] {
            let error = wrong.parse::<Gpus>().expect_err(wrong);
            assert!(error.to_string().contains("numbers of GPUs"), "{error}");
        }
    }
}
