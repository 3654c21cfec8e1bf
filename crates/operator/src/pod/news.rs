//! Follows what the operator wishes.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::patience::Patience;
use crate::exchange::{Client, Wish};

/// Time between two questions that were answered with nothing at once.
const PAUSE: Duration = Duration::from_secs(1);

/// Lets `hear` know of every wish, until it says that it wants no more.
///
/// # Errors
///
/// If the system gives no thread.
pub(super) fn follow(
    client: Arc<Client>,
    mut hear: impl FnMut(Wish) -> bool + Send + 'static,
) -> io::Result<()> {
    let ask = move || {
        let mut patience = Patience::with("news of the operator");
        let mut known = 0;
        loop {
            let asked = Instant::now();
            match client.wish(known) {
                Ok(Some(wish)) => {
                    patience.went_well();
                    known = wish.version;
                    if !hear(wish) {
                        return;
                    }
                }
                Ok(None) => {
                    patience.went_well();
                    std::thread::sleep(PAUSE.saturating_sub(asked.elapsed()));
                }
                Err(error) => std::thread::sleep(patience.failed(&error)),
            }
        }
    };
    std::thread::Builder::new().name("news".into()).spawn(ask).map(drop)
}
