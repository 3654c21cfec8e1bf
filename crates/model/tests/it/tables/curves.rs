//! Measured training curves as losses, and what is read from them.

use bellwether_model::convergence::Observation;
use bellwether_model::elastic::noise_scale;

use super::PolluxJob;

/// A curve as loss: what is missing to accuracy 1, or the error rate; both as a part of 1.
pub fn observations(job: &PolluxJob, table: &str) -> Vec<Observation> {
    let rows = super::curve(table);
    // Some metrics are in percent.
    let unit = if rows.iter().any(|row| row[2] > 1.5) { 100.0 } else { 1.0 };
    let loss = |metric: f64| if job.metric_grows { 1.0 - metric / unit } else { metric / unit };
    rows.iter().map(|row| Observation { progress: row[0], loss: loss(row[2]) }).collect()
}

/// Running median of 5; shorter at the ends.
pub fn smoothed(points: &[Observation]) -> Vec<Observation> {
    let median = |index: usize| {
        let reach = 2.min(index).min(points.len() - 1 - index);
        let mut losses: Vec<f64> =
            points[index - reach..=index + reach].iter().map(|point| point.loss).collect();
        losses.sort_by(f64::total_cmp);
        losses[reach]
    };
    points.iter().enumerate().map(|(index, point)| Observation { loss: median(index), ..*point }).collect()
}

/// Median of the last five losses.
pub fn final_loss(points: &[Observation]) -> f64 {
    let mut losses: Vec<f64> = points.iter().rev().take(5).map(|point| point.loss).collect();
    losses.sort_by(f64::total_cmp);
    losses[losses.len() / 2]
}

/// Progress of the first point that has come down to `target`.
pub fn first_reach(points: &[Observation], target: f64) -> f64 {
    points.iter().find(|point| point.loss <= target).expect("the target is one of the losses").progress
}

/// The baseline: a straight line through the last half of `points`, by least squares, to `target`.
pub fn line_to(points: &[Observation], target: f64) -> Option<f64> {
    let half = &points[points.len() / 2..];
    let count = half.len() as f64;
    let mean = |of: &dyn Fn(&Observation) -> f64| half.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(&|point| point.progress), mean(&|point| point.loss));
    let slope =
        mean(&|point| (point.progress - x) * (point.loss - y)) / mean(&|point| (point.progress - x).powi(2));
    (slope < 0.0).then(|| (x + (target - y) / slope).max(0.0))
}

/// Noise scales of a curve by the progress up to which they hold. An estimate whose squared norm came out as 0
/// says nothing, so the next one holds from where the last one ended.
pub fn noise_scales(initial: u64, rows: &[[f64; 5]]) -> Vec<(f64, f64)> {
    let scale = |row: &[f64; 5]| noise_scale(initial, row[3], row[4]).ok().map(|scale| (row[0], scale));
    rows.iter().filter_map(scale).collect()
}

/// Training losses of recorded runs (see `data/loss-curves`): a table of steps and losses each.
pub fn recorded() -> Vec<(String, Vec<Observation>)> {
    const NUMBER: &str = "each column holds a number";
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/loss-curves");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the data are there") {
        let path = entry.expect("the folder can be read").path();
        if path.extension().is_none_or(|end| end != "csv") {
            continue;
        }
        let point = |line: &str| {
            let (steps, loss) = line.split_once(',').expect("there are two columns");
            Observation { progress: steps.parse().expect(NUMBER), loss: loss.parse().expect(NUMBER) }
        };
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
        found.push((name, text.lines().skip(1).map(point).collect()));
    }
    assert_eq!(found.len(), 9);
    found
}
