//! Quantiles of Student's distribution.
//!
//! The distribution function is `1 − I(ν/(ν+t²); ν/2, 1/2) / 2` for t ≥ 0, with I the regularised incomplete
//! beta function (Abramowitz and Stegun 26.7.1 and 26.5.8); the quantile is found by bisection.

/// The `t` below which a share `probability` of Student's distribution lies.
///
/// # Panics
///
/// Where `probability` is not strictly between 0 and 1, or `freedom` is not positive.
pub(super) fn quantile(probability: f64, freedom: f64) -> f64 {
    assert!(probability > 0.0 && probability < 1.0, "a probability strictly between 0 and 1");
    assert!(freedom > 0.0, "degrees of freedom are positive");
    if probability < 0.5 {
        return -quantile(1.0 - probability, freedom);
    }
    let (mut low, mut high) = (0.0, 1.0);
    while distribution(high, freedom) < probability && high < 1e12 {
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if distribution(middle, freedom) < probability { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

fn distribution(t: f64, freedom: f64) -> f64 {
    1.0 - 0.5 * incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The regularised incomplete beta function by its continued fraction, evaluated by Lentz's rule.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast on this side only; the other side follows by symmetry.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let log_front = a * x.ln() + b * (1.0 - x).ln() + log_gamma(a + b) - log_gamma(a) - log_gamma(b);
    let nonzero = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let (mut c, mut d) = (1.0, 1.0 / nonzero(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..300 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / nonzero(1.0 + term * d);
            c = nonzero(1.0 + term / c);
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-16 {
            break;
        }
    }
    log_front.exp() * fraction / a
}

/// `ln Γ(x)` for x > 0: Stirling's series after shifting the argument beyond 10.
fn log_gamma(x: f64) -> f64 {
    let mut shifted = x;
    let mut taken = 0.0;
    while shifted < 10.0 {
        taken += shifted.ln();
        shifted += 1.0;
    }
    let inverse = 1.0 / (shifted * shifted);
    let series =
        (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / shifted;
    (shifted - 0.5) * shifted.ln() - shifted + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - taken
}

#[cfg(test)]
mod tests {
    use super::quantile;

    /// Tabulated values, and the two cases with a closed form: Cauchy, and two degrees of freedom.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, expected) in
            [(5.0, 2.570_582), (18.0, 2.100_922), (100.0, 1.983_972), (258.0, 1.969_201)]
        {
            let t = quantile(0.975, freedom);
            assert!((t - expected).abs() < 1e-6, "{freedom}: {t}");
        }
        assert!((quantile(0.975, 1.0) - (0.475 * std::f64::consts::PI).tan()).abs() < 1e-9);
        assert!((quantile(0.9, 2.0) - 0.8 * (2.0_f64 / (1.0 - 0.64)).sqrt()).abs() < 1e-9);
        assert_eq!(quantile(0.1, 7.0), -quantile(0.9, 7.0));
    }
}
