//! Where the operator leaves its wishes for pods, and hears from them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bellwether_runtime::run_dir::RunFile;
use tokio::sync::watch;

use super::wish::{Report, Wish};

/// Something that a pod of a job said.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum News {
    /// The copy of this file of the job's run has more bytes.
    Grew(RunFile),
    /// A script says how fast it is.
    Reported(Report),
}

/// What was asked, and how it was answered, since the operator began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that sent bytes of a file, and were taken.
    pub copied: u64,
    /// Bytes that copies grew by.
    pub copied_bytes: u64,
    /// Requests that sent bytes which belong elsewhere.
    pub misplaced: u64,
    /// Requests for bytes of a copy.
    pub restored: u64,
    /// Questions for news of the wish.
    pub polls: u64,
    /// Reports of scripts.
    pub reports: u64,
    /// Requests for jobs that are not known.
    pub unknown: u64,
    /// Requests without a right signature.
    pub unsigned: u64,
    /// Requests of coordinators that others have replaced.
    pub replaced: u64,
    /// Requests that make no sense, or are too large.
    pub malformed: u64,
    /// Requests that failed here, as where the disk is full.
    pub failed: u64,
}

/// The same while it is counted.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) copied: AtomicU64,
    pub(super) copied_bytes: AtomicU64,
    pub(super) misplaced: AtomicU64,
    pub(super) restored: AtomicU64,
    pub(super) polls: AtomicU64,
    pub(super) reports: AtomicU64,
    pub(super) unknown: AtomicU64,
    pub(super) unsigned: AtomicU64,
    pub(super) replaced: AtomicU64,
    pub(super) malformed: AtomicU64,
    pub(super) failed: AtomicU64,
}

type Wished = watch::Sender<Option<Wish>>;

/// Who hears of news: the uid of the job, and what.
type OnNews = Box<dyn Fn(&str, News) + Send + Sync>;

struct Shared {
    wishes: Mutex<BTreeMap<String, Wished>>,
    /// Held while the copy of a job is read or changed.
    copying: Mutex<BTreeMap<String, Arc<Mutex<()>>>>,
    on_news: OnNews,
    tally: Tally,
}

/// The wishes for all jobs. It can be cloned, and is the same one then.
#[derive(Clone)]
pub struct Desk(Arc<Shared>);

impl Desk {
    /// A desk without wishes. `on_news` hears what pods say, on the threads that answer them: it should pass it on.
    pub fn new(on_news: impl Fn(&str, News) + Send + Sync + 'static) -> Desk {
        let (wishes, copying, tally) = (Mutex::default(), Mutex::default(), Tally::default());
        Desk(Arc::new(Shared { wishes, copying, on_news: Box::new(on_news), tally }))
    }

    /// Wishes this of a job's pods from now on. Says which version it is: another than the last one if anything in it
    /// differs, also from those of an operator before this one.
    pub fn set_wish(&self, uid: &str, wish: Wish) -> u64 {
        let wished = self.wished(uid);
        let mut version = 0;
        wished.send_if_modified(|last| {
            let known = last.as_ref().map_or(0, |last| last.version);
            let same = Wish { version: known, ..wish.clone() };
            if last.as_ref() == Some(&same) {
                version = known;
                return false;
            }
            version = now_ms().max(known + 1);
            *last = Some(Wish { version, ..same });
            true
        });
        version
    }

    /// What is wished of a job's pods now.
    pub fn wish(&self, uid: &str) -> Option<Wish> {
        lock(&self.0.wishes).get(uid)?.borrow().clone()
    }

    /// Forgets a job that is gone.
    pub fn remove(&self, uid: &str) {
        lock(&self.0.wishes).remove(uid);
        lock(&self.0.copying).remove(uid);
    }

    /// What was asked and answered so far.
    pub fn counts(&self) -> Counts {
        let tally = &self.0.tally;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            copied: of(&tally.copied),
            copied_bytes: of(&tally.copied_bytes),
            misplaced: of(&tally.misplaced),
            restored: of(&tally.restored),
            polls: of(&tally.polls),
            reports: of(&tally.reports),
            unknown: of(&tally.unknown),
            unsigned: of(&tally.unsigned),
            replaced: of(&tally.replaced),
            malformed: of(&tally.malformed),
            failed: of(&tally.failed),
        }
    }

    /// Waits for a wish that is not the one with this version; `None` if none comes within `patience`.
    pub(super) async fn news(&self, uid: &str, known: u64, patience: Duration) -> Option<Wish> {
        let mut wished = self.wished(uid).subscribe();
        let is_new = |wish: &Option<Wish>| wish.as_ref().is_some_and(|wish| wish.version != known);
        // It also ends when the job is forgotten.
        tokio::time::timeout(patience, wished.wait_for(is_new)).await.ok()?.ok()?.clone()
    }

    /// What is locked while the copy of a job is read or changed.
    pub(super) fn copying(&self, uid: &str) -> Arc<Mutex<()>> {
        Arc::clone(lock(&self.0.copying).entry(uid.into()).or_default())
    }

    pub(super) fn tell(&self, uid: &str, news: News) {
        (self.0.on_news)(uid, news);
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.0.tally
    }

    fn wished(&self, uid: &str) -> Wished {
        lock(&self.0.wishes).entry(uid.into()).or_insert_with(|| watch::channel(None).0).clone()
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

/// One more of what is counted.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// None of these locks guards something that a panic leaves in halves.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(future)
    }

    #[test]
    fn another_wish_has_another_version() {
        let desk = Desk::new(|_, _| {});
        let stop = Wish { stop: true, ..Wish::default() };
        let first = desk.set_wish("a", Wish::default());
        assert_eq!(desk.set_wish("a", Wish { version: 3, ..Wish::default() }), first);
        let second = desk.set_wish("a", stop.clone());
        assert!(second > first && first > 1_000_000);
        assert_eq!(desk.wish("a"), Some(Wish { version: second, ..stop }));
        desk.remove("a");
        assert_eq!(desk.wish("a"), None);
    }

    #[test]
    fn news_are_what_is_not_known() {
        let desk = Desk::new(|_, _| {});
        run(async {
            let short = Duration::from_millis(20);
            assert_eq!(desk.news("a", 0, short).await, None);
            let version = desk.set_wish("a", Wish::default());
            // A pod may have heard of a later one, from an operator whose clock was ahead.
            for known in [0, version - 1, version + 1] {
                assert_eq!(desk.news("a", known, short).await.map(|wish| wish.version), Some(version));
            }
            assert_eq!(desk.news("a", version, short).await, None);
            let later = async {
                tokio::time::sleep(short).await;
                desk.set_wish("a", Wish { stop: true, ..Wish::default() })
            };
            let (heard, version) = tokio::join!(desk.news("a", version, Duration::from_secs(10)), later);
            assert_eq!(heard.map(|wish| wish.version), Some(version));
        });
    }
}
