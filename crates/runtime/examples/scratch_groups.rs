//! Scratch.
use bellwether_runtime::channel::Stream;
use bellwether_runtime::collective::{Collective, CollectivePlan, Member, Stamp, wake_pair};
use bellwether_runtime::mesh::Mesh;
use std::os::unix::net::UnixStream;
use std::time::Instant;
fn main() {
    let a: Vec<usize> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let (w, group, length, rounds) = (a[0], a[1], a[2], a[3]);
    let bounds: Vec<usize> = (0..w).step_by(group).collect();
    let plan = |me: u64| {
        let members = (0..w as u32).map(|i| Member { worker: u64::from(i), nodes: i..i + 1 }).collect();
        CollectivePlan::in_groups(w as u32, members, vec![], me, length, &bounds).unwrap()
    };
    let mut meshes: Vec<Mesh> = (0..w).map(|_| Mesh::new()).collect();
    for x in 0..w {
        for y in plan(x as u64).peers() {
            if (y as usize) < x {
                let (l, r) = UnixStream::pair().unwrap();
                meshes[x].insert(y, Stream::from(l)).unwrap();
                meshes[y as usize].insert(x as u64, Stream::from(r)).unwrap();
            }
        }
    }
    let best = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (me, mut mesh) in meshes.into_iter().enumerate() {
            let (plan, best) = (&plan, &best);
            scope.spawn(move || {
                let (_w, wake) = wake_pair().unwrap();
                let mut collective = Collective::new(plan(me as u64));
                let sum = vec![1.0f32; length];
                let partials: Vec<&[f32]> = if length > 0 { vec![&sum] } else { vec![] };
                let mut out = vec![0.0; length];
                let control = [0u8; 72];
                let mut times = Vec::new();
                for step in 0..rounds as u64 {
                    let t = Instant::now();
                    collective
                        .run(
                            &mut mesh,
                            Stamp { job: 1, epoch: 1, step },
                            &control,
                            &partials,
                            &mut out,
                            &wake,
                        )
                        .unwrap();
                    times.push(t.elapsed().as_secs_f64());
                }
                assert!(out.iter().all(|x| *x == w as f32));
                if me == 0 {
                    best.lock().unwrap().extend(times);
                }
            });
        }
    });
    let mut t = best.into_inner().unwrap();
    t.sort_by(f64::total_cmp);
    println!(
        "W={w} group={group} length={length}: median {:.0} us, best tenth {:.0} us",
        1e6 * t[t.len() / 2],
        1e6 * t[t.len() / 10]
    );
}
