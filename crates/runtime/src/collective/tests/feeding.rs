//! Sums that are handed over bucket by bucket: when a collective begins, and when it may end.

use super::*;

/// A thread that computes and gives up takes its collective with it.
#[test]
fn a_feed_that_ends_too_early_interrupts() {
    with_watchdog(|| {
        let case = Case::new(2, 2, 100_000);
        let mut meshes = case.meshes();
        let (_, mut mesh) = meshes.remove(0);
        let mut collective = case.collective(10, case.length);
        let (wakes, (_waker, wake)) = (wake_pair().unwrap(), wake_pair().unwrap());
        let (feeder, feed) = feed(&wakes, None);
        let first = vec![1.0; collective.plan().cut.buckets[0].len()];
        let mut out = vec![0.0; case.length];
        std::thread::scope(|scope| {
            let exchange =
                scope.spawn(|| collective.run_fed(&mut mesh, stamp(0), feed, &mut out, &wake).unwrap_err());
            feeder.bucket(vec![&first]);
            std::thread::sleep(Duration::from_millis(20));
            drop(feeder);
            assert_eq!(exchange.join().unwrap(), CollectiveError::Interrupted);
        });
    });
}

/// All else may be done before the control bytes come, where no other member waits for them.
#[test]
fn a_feed_is_taken_to_its_end() {
    for (workers, cuts) in [(1, vec![]), (4, vec![2])] {
        for small_bytes_max in [0, 32 * 1024] {
            let case = Case { fed: true, delays: 7, small_bytes_max, ..Case::new(4, workers, 1000) };
            check(&Case { cuts: cuts.clone(), ..case });
        }
    }
}
