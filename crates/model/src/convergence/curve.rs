//! The forms of a loss curve, and the fit of one form.

use bellwether_numerics::minimize::{Bounds, huber, minimize};

/// One point of a training curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Progress: steps or samples.
    pub progress: f64,
    /// Loss, or what is missing to perfect accuracy.
    pub loss: f64,
}

/// How a loss falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `c + A / (1 + k/d)`.
    Hyperbola,
    /// `c + A / (1 + k/d)^p`.
    Power,
    /// `c + A exp(-k/d)`.
    Exponential,
}

/// A form with its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Curve {
    /// The form.
    pub form: Form,
    /// Progress at which the descent begins: 0, or where the curve broke.
    pub origin: f64,
    /// Loss above `asymptote` at `origin`.
    pub height: f64,
    /// Progress that the descent is measured in.
    pub scale: f64,
    /// Exponent; 1 where the form has none.
    pub exponent: f64,
    /// Loss that is never undercut.
    pub asymptote: f64,
}

impl Form {
    /// Every form.
    pub const ALL: [Form; 3] = [Form::Hyperbola, Form::Power, Form::Exponential];
}

impl Curve {
    /// Loss at a progress; before `origin` that at `origin`.
    pub fn loss(&self, progress: f64) -> f64 {
        let part = (progress - self.origin).max(0.0) / self.scale;
        let descent = match self.form {
            Form::Exponential => (-part).exp(),
            Form::Hyperbola | Form::Power => (-self.exponent * part.ln_1p()).exp(),
        };
        self.asymptote + self.height * descent
    }

    /// Progress at which the loss has come down to `target`, from `origin` on; `None` when it never does.
    pub fn progress_to(&self, target: f64) -> Option<f64> {
        let above = target - self.asymptote;
        if above <= 0.0 {
            return None;
        }
        let folds = (self.height / above).ln().max(0.0);
        let progress = match self.form {
            Form::Exponential => self.scale * folds,
            Form::Hyperbola | Form::Power => self.scale * (folds / self.exponent).exp_m1(),
        };
        progress.is_finite().then_some(self.origin + progress)
    }
}

/// Jitter of a curve from point to point, as a standard deviation; outliers do not count.
pub(super) fn jitter(points: &[Observation]) -> f64 {
    // Second differences, so that a slope does not count as jitter: their variance is 6 times that of a point.
    let mut sizes: Vec<f64> =
        points.windows(3).map(|w| (w[0].loss - 2.0 * w[1].loss + w[2].loss).abs() / 6.0_f64.sqrt()).collect();
    sizes.sort_by(f64::total_cmp);
    let median = sizes.get(sizes.len() / 2).copied().unwrap_or(0.0);
    // 1.4826: the median of the sizes of normal errors to their standard deviation.
    (1.4826 * median).max(1e-3 * span(points)).max(f64::MIN_POSITIVE)
}

fn span(points: &[Observation]) -> f64 {
    let (low, high) = ends(points);
    high - low
}

fn ends(points: &[Observation]) -> (f64, f64) {
    points.iter().fold((f64::MAX, f64::MIN), |(low, high), p| (low.min(p.loss), high.max(p.loss)))
}

/// How far `curve` is from `points`, in units of their jitter; outliers hardly count.
pub(super) fn misfit(curve: &Curve, points: &[Observation], jitter: f64) -> f64 {
    points.iter().map(|point| huber((curve.loss(point.progress) - point.loss) / jitter)).sum()
}

/// The curve of this form nearest to `points`, which begins at `origin` and has no loss below `floor`; a search from
/// `near` only, when given.
pub(super) fn fit(
    form: Form,
    points: &[Observation],
    origin: f64,
    floor: f64,
    near: Option<&Curve>,
) -> Curve {
    let jitter = jitter(points);
    let (low, high) = ends(points);
    let height = (high - floor).max(jitter);
    let last = points.iter().map(|point| point.progress - origin).fold(f64::MIN_POSITIVE, f64::max);
    // Logarithms of height, scale and exponent, and the asymptote's place between floor and highest loss.
    let mut bounds =
        Bounds::new(vec![-7.0, -7.0, -2.5, 0.0], vec![7.0, 7.0, 2.5, 1.0]).expect("ends are in order");
    if form != Form::Power {
        bounds.fix(2, 0.0);
    }
    let decode = |x: &[f64]| Curve {
        form,
        origin,
        height: height * x[0].exp(),
        scale: last * x[1].exp(),
        exponent: x[2].exp(),
        asymptote: floor + height * x[3],
    };
    let cost = |x: &[f64]| misfit(&decode(x), points, jitter);
    let lowest = ((low - floor) / height).clamp(0.0, 1.0);
    let starts = match near {
        Some(near) => {
            let asymptote = (near.asymptote - floor) / height;
            vec![vec![(near.height / height).ln(), (near.scale / last).ln(), near.exponent.ln(), asymptote]]
        }
        None => {
            let start = |scale: f64, asymptote: f64| vec![0.0, scale, 0.0, asymptote * lowest];
            vec![start(-2.0, 0.9), start(-0.5, 0.5), start(-4.0, 0.95), start(1.0, 0.0)]
        }
    };
    decode(&minimize(cost, &bounds, &starts).x)
}
