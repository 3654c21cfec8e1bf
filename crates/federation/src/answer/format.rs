//! Numbers and names as the sentences of an answer write them.

/// `a, b and c`.
pub fn and(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Dollars, with their sign.
pub fn money(dollars: f64) -> String {
    let sign = if dollars < 0.0 { "-" } else { "" };
    format!("{sign}${}", figure(dollars.abs()))
}

/// Two decimals, more for what is small.
pub fn figure(value: f64) -> String {
    let text = match value.abs() {
        size if !(5e-7..0.095).contains(&size) => format!("{value:.2}"),
        size if size >= 0.000_95 => format!("{value:.4}"),
        _ => format!("{value:.6}"),
    };
    if text.trim_start_matches('-').chars().all(|c| c == '0' || c == '.') { "0.00".to_string() } else { text }
}
